// States of weights as f32 and back, by the formulas of math/, and f32 values as scaled FP16,
// rounded stochastically (math/master.h): no more than memory takes.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "base/integer.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// A grid for n warps' work, at once on the card: each goes on until nothing is left.
unsigned blocks_of(int n_sm, int64_t n_warps, int each_sm = 8) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(n_warps, kWarps), 1, int64_t{n_sm} * each_sm));
}

struct StateTask {
  StateParams p;
  WeightPlace from, to;  // of codes the metadata is the rest
  const uint8_t* skip;   // nullptr: never
  const uint32_t* attempt;
};
__device__ __forceinline__ RandomStream stream_of(const StateTask& t) {
  return {.name = t.p.stream,
          .seed = t.p.seed,
          .step = t.attempt == nullptr ? 0u : *t.attempt,
          .micro_batch = 0};
}

// Values of f32, BF16 or FP16, or BF16 with a remainder.
template <int N>
__global__ void __launch_bounds__(kThreads) move_values(const __grid_constant__ StateTask t) {
  if (t.skip != nullptr && *t.skip != 0) return;
  for_runs<N>(t.p.n, [&]<int kN>(int64_t i) {
    const auto run = load_weights<kN>(t.from, i);
    float x[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) x[j] = weight_at(t.from, run, j);
    Run<kN> words{};
    if (t.to.store == WeightStore::stochastic) words = draw<kN>(stream_of(t), t.p.first + i);
    store_weights<kN>(t.to, i, x, words);
  });
}

__device__ __forceinline__ MomentCoding coding_of(const StateParams& p) {
  return {.dtype = p.state,
          .moment = p.second ? Moment::second : Moment::first,
          .expand = p.expand,
          .stochastic = p.stochastic,
          .math = p.exact ? MathMode::exact : MathMode::fast};
}
// f(first, end, group) for each group that this warp has.
template <typename F>
__device__ __forceinline__ void for_groups(const StateParams& p, F&& f) {
  const int64_t n_groups = (p.n + p.group - 1) / p.group;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t g = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; g < n_groups; g += stride)
    f(g * p.group + threadIdx.x % 32, min(p.n, (g + 1) * p.group), g);
}
__global__ void __launch_bounds__(kThreads) load_codes(const __grid_constant__ StateTask t) {
  const MomentCoding coding = coding_of(t.p);
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    const uint32_t meta = static_cast<const uint32_t*>(t.from.rest_from)[group];
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first; i < end; i += 32) {
        const uint32_t code = static_cast<const uint8_t*>(t.from.from)[i];
        static_cast<float*>(t.to.to)[i] = detail::decode_moment<D>(coding, meta, code);
      }
    });
  });
}
__global__ void __launch_bounds__(kThreads) save_codes(const __grid_constant__ StateTask t) {
  if (*t.skip != 0) return;
  const MomentCoding coding = coding_of(t.p);
  const RandomStream random = stream_of(t);
  const auto* x = static_cast<const float*>(t.from.from);
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    AbsRange range;
    for (int64_t i = first; i < end; i += 32) range = join(range, stored_moment(x[i]));
    const AbsRange whole = range_of_warp(range);
    const uint32_t meta = t.p.second ? meta_of<Formats::all, Moment::second>(coding, whole)
                                     : meta_of<Formats::all, Moment::first>(coding, whole);
    if (threadIdx.x % 32 == 0) static_cast<uint32_t*>(t.to.rest_to)[group] = meta;
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first; i < end; i += 32) {
        const uint32_t word = coding.stochastic ? draw<1>(random, t.p.first + i).at[0] : 0;
        static_cast<uint8_t*>(t.to.to)[i] = static_cast<uint8_t>(
            meta == 0 ? 0u : encode_moment<D>(coding, meta, stored_moment(x[i]), word));
      }
    });
  });
}

// What a step that is skipped leaves as it was.
__global__ void keep_state(const uint8_t* skip, const void* old, void* y, int64_t n_bytes) {
  if (*skip != 0) copy_elements<uint8_t>(old, y, 0, n_bytes);
}

// Runs of eight begin at multiples of an f32's eight and of a block of words.
bool takes_eights(const StateTask& t) {
  const auto is_aligned = [](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % sizeof(Run<8>) == 0;
  };
  return t.p.first % 4 == 0 && is_aligned(t.from.from) && is_aligned(t.to.to) &&
         is_aligned(t.from.rest_from) && is_aligned(t.to.rest_to);
}
void launch_state(const StateTask& t, const Launch& args, void (*of_codes)(StateTask)) {
  const bool has_codes = is_moment_format(t.p.state);
  const auto kernel = has_codes ? of_codes : takes_eights(t) ? move_values<8> : move_values<1>;
  const unsigned blocks = blocks_of(args.n_sm, ceil_div(t.p.n, has_codes ? t.p.group : 256));
  kernel<<<blocks, kThreads, 0, args.stream>>>(t);
}
WeightStore store_of(const StateParams& p) {
  if (p.has_remainder) return WeightStore::remainder;
  return p.stochastic && p.state == Dtype::bf16 ? WeightStore::stochastic : WeightStore::plain;
}

struct StoreTask {
  StoreScaledParams p;
  const float* x;
  const float* scale;
  const uint32_t* attempt;
  uint16_t* q;
};
// N of 1: any cut of a tensor, any alignment. More: whole blocks of words; what rounds of all of
// them share is made once a thread, and the next run is read while this one is drawn for.
template <int N>
__global__ void __launch_bounds__(kThreads, 4)
    store_runs(const __grid_constant__ StoreTask t, const __grid_constant__ RoundKeys keys) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * N;
  int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= t.p.n) return;
  Run<N> now = load_run<N>(Dtype::f32, t.x, i);
  const RandomStream random{
      .name = t.p.stream, .seed = t.p.seed, .step = *t.attempt, .micro_batch = 0};
  const DrawShared shared = draw_shared(keys, 0, *t.attempt);
  const float inverse = 1.0f / *t.scale;  // of a power of two
  for (; i < t.p.n; i += stride) {
    Run<N> next = now, q{}, words;
    if (i + stride < t.p.n) next = load_run<N>(Dtype::f32, t.x, i + stride);
    if constexpr (N == 1) {
      words = draw<1>(random, t.p.first + i);
    } else {
#pragma unroll
      for (int j = 0; j < N; j += 4) {
        const auto counter = static_cast<uint32_t>((t.p.first + i + j) / 4);
        const PhiloxBlock four = draw_block(keys, shared, counter);
#pragma unroll
        for (int k = 0; k < 4; ++k) words.at[j + k] = four.word[k];
      }
    }
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float x = __uint_as_float(now.at[j]) * inverse;
      put_half(q, j, store_fp16(x, words.at[j], t.p.keeps_positive));
    }
    store_run<N>(Dtype::fp16, t.q, i, q);
    now = next;
  }
}

}  // namespace

void load_state(const StateParams& p, const Launch& args) {
  using S = octet::LoadState;
  const bool has_rest = p.has_remainder || is_moment_format(p.state);
  const void* rest = has_rest ? args.operands[S::rest] : nullptr;
  const StateTask t{.p = p,
                    .from = {store_of(p), p.state, args.operands[S::x], rest, nullptr, nullptr},
                    .to = {.dtype = Dtype::f32, .to = args.results[S::y]},
                    .skip = nullptr,
                    .attempt = nullptr};
  launch_state(t, args, load_codes);
  check_launch("load_state");
}

void store_state(const StateParams& p, const Launch& args) {
  using S = octet::StoreState;
  const bool has_meta = is_moment_format(p.state), has_rest = p.has_remainder || has_meta;
  void *y = args.results[S::y], *rest = has_rest ? args.results[S::rest] : nullptr;
  const StateTask t{.p = p,
                    .from = {.dtype = Dtype::f32, .from = args.operands[S::x]},
                    .to = {store_of(p), p.state, nullptr, nullptr, y, rest},
                    .skip = args.in<uint8_t>(S::skip),
                    .attempt = p.stochastic ? args.in<uint32_t>(S::attempt) : nullptr};
  launch_state(t, args, save_codes);
  const auto keep = [&](const void* old, void* to, int64_t n_bytes) {
    if (old == to || n_bytes == 0) return;
    const unsigned blocks = blocks_of(args.n_sm, ceil_div(n_bytes, 32));
    keep_state<<<blocks, kThreads, 0, args.stream>>>(t.skip, old, to, n_bytes);
  };
  keep(args.operands[S::old], y, p.n * p.bytes);
  if (has_rest) {
    keep(args.operands[S::old_rest], rest, has_meta ? 4 * ceil_div(p.n, p.group) : 2 * p.n);
  }
  check_launch("store_state");
}

void store_scaled(const StoreScaledParams& p, const Launch& args) {
  using S = octet::StoreScaled;
  constexpr int kEach = 8, kBlocks = 4;
  const RoundKeys keys =
      round_keys({.name = p.stream, .seed = p.seed, .step = 0, .micro_batch = 0});
  StoreTask t{.p = p,
              .x = args.in<float>(S::x),
              .scale = args.in<float>(S::scale),
              .attempt = args.in<uint32_t>(S::attempt),
              .q = args.out<uint16_t>(S::q)};
  // A run has two whole blocks of words, which a 32-bit counter finds.
  const bool has_runs = p.first % 4 == 0 && (p.first + p.n) / 4 < int64_t{1} << 32 &&
                        reinterpret_cast<uintptr_t>(t.x) % sizeof(Run<kEach>) == 0 &&
                        reinterpret_cast<uintptr_t>(t.q) % 16 == 0;
  const int64_t n = has_runs ? p.n / kEach * kEach : 0;
  if (n != 0) {
    t.p.n = n;
    const unsigned blocks = blocks_of(args.n_sm, ceil_div(n, 32 * kEach), kBlocks);
    store_runs<kEach><<<blocks, kThreads, 0, args.stream>>>(t, keys);
  }
  if (n != p.n) {
    t.p.n = p.n - n, t.p.first += n, t.x += n, t.q += n;
    const unsigned blocks = blocks_of(args.n_sm, ceil_div(t.p.n, 32), kBlocks);
    store_runs<1><<<blocks, kThreads, 0, args.stream>>>(t, keys);
  }
  check_launch("store_scaled");
}

}  // namespace octet::cuda
