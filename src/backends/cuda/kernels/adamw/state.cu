// States of weights as f32 and back, by the formulas of math/, and f32 values as scaled FP16,
// rounded stochastically (math/master.h): no more than memory takes.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_copy.cuh"
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

// One of both: the state and what lies beside it, a remainder or metadata, and its values.
struct StateTask {
  StateParams p;
  const void *x, *rest_from;
  void *y, *rest_to;
  const uint8_t* skip;
  const uint32_t* attempt;
};
__device__ __forceinline__ WeightPlace weight_of(const StateTask& t) {
  const WeightStore store = t.p.has_remainder                            ? WeightStore::remainder
                            : t.p.stochastic && t.p.state == Dtype::bf16 ? WeightStore::stochastic
                                                                         : WeightStore::plain;
  return {store, t.p.state, t.x, t.rest_from, t.y, t.rest_to};
}
__device__ __forceinline__ RandomStream stream_of(const StateTask& t) {
  return {.name = t.p.stream,
          .seed = t.p.seed,
          .step = t.attempt == nullptr ? 0u : *t.attempt,
          .micro_batch = 0};
}

// f.template operator()<n>(i) for n elements from i on: N at once, the last few one by one.
template <int N, typename F>
__device__ __forceinline__ void for_runs(int64_t n, F&& f) {
  const int64_t stride = int64_t{gridDim.x} * kThreads * N;
  for (int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N; i < n; i += stride) {
    if (i + N <= n) {
      f.template operator()<N>(i);
    } else {
      for (int64_t j = i; j < n; ++j) f.template operator()<1>(j);
    }
  }
}
// Values of f32, BF16 or FP16, or BF16 with a remainder.
template <int N>
__global__ void __launch_bounds__(kThreads) load_values(const __grid_constant__ StateTask t) {
  const WeightPlace from = weight_of(t);
  for_runs<N>(t.p.n, [&]<int kN>(int64_t i) {
    const auto run = load_weights<kN>(from, i);
    Run<kN> y;
#pragma unroll
    for (int j = 0; j < kN; ++j) y.at[j] = __float_as_uint(weight_at(from, run, j));
    store_run<kN>(Dtype::f32, t.y, i, y);
  });
}
template <int N>
__global__ void __launch_bounds__(kThreads) save_values(const __grid_constant__ StateTask t) {
  if (*t.skip != 0) return;
  const WeightPlace to = weight_of(t);
  for_runs<N>(t.p.n, [&]<int kN>(int64_t i) {
    const auto run = load_run<kN>(Dtype::f32, t.x, i);
    float x[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) x[j] = __uint_as_float(run.at[j]);
    Run<kN> words{};
    if (to.store == WeightStore::stochastic) words = draw<kN>(stream_of(t), t.p.first + i);
    store_weights<kN>(to, i, x, words);
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
    const uint32_t meta = static_cast<const uint32_t*>(t.rest_from)[group];
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first; i < end; i += 32) {
        const uint32_t code = static_cast<const uint8_t*>(t.x)[i];
        static_cast<float*>(t.y)[i] = detail::decode_moment<D>(coding, meta, code);
      }
    });
  });
}
__global__ void __launch_bounds__(kThreads) save_codes(const __grid_constant__ StateTask t) {
  if (*t.skip != 0) return;
  const MomentCoding coding = coding_of(t.p);
  const RandomStream random = stream_of(t);
  const auto* x = static_cast<const float*>(t.x);
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    AbsRange range;
    for (int64_t i = first; i < end; i += 32) range = join(range, stored_moment(x[i]));
    const AbsRange whole = range_of_warp(range);
    const uint32_t meta = t.p.second ? meta_of<Formats::all, Moment::second>(coding, whole)
                                     : meta_of<Formats::all, Moment::first>(coding, whole);
    if (threadIdx.x % 32 == 0) static_cast<uint32_t*>(t.rest_to)[group] = meta;
    visit_moment_codes<Formats::all>(coding.dtype, [&]<Dtype D>() {
      for (int64_t i = first; i < end; i += 32) {
        const uint32_t word = coding.stochastic ? draw<1>(random, t.p.first + i).at[0] : 0;
        static_cast<uint8_t*>(t.y)[i] = static_cast<uint8_t>(
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
  return t.p.first % 4 == 0 && is_aligned(t.x) && is_aligned(t.y) && is_aligned(t.rest_from) &&
         is_aligned(t.rest_to);
}
using StateKernel = void (*)(StateTask);
// kernels: of codes, of runs of eight, of single elements.
void launch_state(const StateTask& t, const Launch& args, const StateKernel (&kernels)[3]) {
  const bool has_codes = is_moment_format(t.p.state);
  const StateKernel kernel = kernels[has_codes ? 0 : takes_eights(t) ? 1 : 2];
  const unsigned blocks = blocks_of(args.n_sm, ceil_div(t.p.n, has_codes ? t.p.group : 256));
  kernel<<<blocks, kThreads, 0, args.stream>>>(t);
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
  const StateTask t{.p = p,
                    .x = args.operands[S::x],
                    .rest_from = has_rest ? args.operands[S::rest] : nullptr,
                    .y = args.results[S::y],
                    .rest_to = nullptr,
                    .skip = nullptr,
                    .attempt = nullptr};
  launch_state(t, args, {load_codes, load_values<8>, load_values<1>});
  check_launch("load_state");
}

void store_state(const StateParams& p, const Launch& args) {
  using S = octet::StoreState;
  const bool has_meta = is_moment_format(p.state), has_rest = p.has_remainder || has_meta;
  const StateTask t{.p = p,
                    .x = args.operands[S::x],
                    .rest_from = nullptr,
                    .y = args.results[S::y],
                    .rest_to = has_rest ? args.results[S::rest] : nullptr,
                    .skip = args.in<uint8_t>(S::skip),
                    .attempt = p.stochastic ? args.in<uint32_t>(S::attempt) : nullptr};
  launch_state(t, args, {save_codes, save_values<8>, save_values<1>});
  const auto keep = [&](const void* old, void* y, int64_t n_bytes) {
    if (old == y || n_bytes == 0) return;
    const unsigned blocks = blocks_of(args.n_sm, ceil_div(n_bytes, 32));
    keep_state<<<blocks, kThreads, 0, args.stream>>>(t.skip, old, y, n_bytes);
  };
  keep(args.operands[S::old], t.y, p.n * p.bytes);
  if (has_rest) {
    keep(args.operands[S::old_rest], t.rest_to, has_meta ? 4 * ceil_div(p.n, p.group) : 2 * p.n);
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
