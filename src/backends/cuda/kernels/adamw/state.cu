// States of weights as f32 and back, by the formulas of math/, and f32 values as scaled FP16,
// rounded stochastically (math/master.h): no more than memory takes.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "backends/cuda/kernels/common/vector8.cuh"
#include "base/integer.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kBlocks = 4;  // of move_values, on one multiprocessor

// A grid for n warps' work, at once on the card: each goes on until nothing is left.
unsigned blocks_of(int n_sm, int64_t n_warps, int each_sm = 8) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(n_warps, kWarps), 1, int64_t{n_sm} * each_sm));
}

struct StateTask {
  StateParams p;
  WeightPlace from, to;     // of codes the metadata is the rest
  const uint8_t* skip;      // nullptr: never
  const uint32_t* attempt;  // nullptr: 0
  const float* scale;       // of FP16, a power of two; nullptr: no scale
  bool keeps_positive;      // math/master.h
  RoundKeys keys;
};
__device__ __forceinline__ RandomStream stream_of(const StateTask& t) {
  return {t.p.stream, t.p.seed, t.attempt == nullptr ? 0u : *t.attempt};
}

// Values of f32, BF16 or FP16, or BF16 with a remainder, from element `first` on. N of 1: any cut
// of a tensor, any alignment. More: whole runs of whole blocks of words; what all of these share is
// made once a thread, and the next run is read while this one is drawn for.
template <int N>
__global__ void __launch_bounds__(kThreads, kBlocks)
    move_values(const __grid_constant__ StateTask t, int64_t first) {
  if (t.skip != nullptr && *t.skip != 0) return;
  const int64_t stride = int64_t{gridDim.x} * kThreads * N, end = t.p.n / N * N;
  int64_t i = first + (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= end) return;
  const RandomStream random = stream_of(t);
  const float inverse = t.scale == nullptr ? 1.0f : 1.0f / *t.scale;
  Run<N> now = load_weights<N>(t.from, i);
  for (; i < end; i += stride) {
    Run<N> next = now, words{};
    if (i + stride < end) next = load_weights<N>(t.from, i + stride);
    const int64_t place = t.p.first + i;
    const bool is_drawn = t.to.store == WeightStore::stochastic;
    if constexpr (N == 1) {
      if (is_drawn) words = draw<1>(random, place);
    } else if (is_drawn) {
#pragma unroll
      for (int j = 0; j < N; j += 4)
        reinterpret_cast<PhiloxBlock&>(words.at[j]) =
            draw_block(t.keys, static_cast<uint32_t>((place + j) / 4), 0, random.step);
    }
    float x[N];
    weights_of(t.from, now, x);
    if (t.scale != nullptr)
      store_scaled({inverse, t.keeps_positive}, t.to.to, i, x, words);
    else
      store_weights<N>(t.to, i, x, words);
    now = next;
  }
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
  const AmaxRounding rounding = amax_rounding(coding, random);
  const auto* x = static_cast<const float*>(t.from.from);
  for_groups(t.p, [&](int64_t first, int64_t end, int64_t group) {
    AbsRange range;
    for (int64_t i = first; i < end; i += 32) range = join(range, stored_moment(x[i]));
    const AbsRange whole = range_of_warp(range);
    const uint32_t up = rounding.up(t.p.first + group * t.p.group);
    const uint32_t meta = t.p.second ? meta_of<Formats::all, Moment::second>(coding, whole, up)
                                     : meta_of<Formats::all, Moment::first>(coding, whole, up);
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

// State that a skipped step leaves as it was.
__global__ void keep_state(const uint8_t* skip, const void* old, void* y, int64_t n_bytes) {
  if (*skip != 0) copy_elements<uint8_t>(old, y, 0, n_bytes);
}

// Runs of eight begin at multiples of their bytes and of a block of words, which a 32-bit counter
// finds.
bool takes_eights(const StateTask& t) {
  const auto fits = [](const void* at, Dtype dtype) {
    return is_aligned(at, 8 * dtype_bytes(dtype));
  };
  return t.p.first % 4 == 0 && (t.p.first + t.p.n) / 4 < int64_t{1} << 32 &&
         fits(t.from.from, t.from.dtype) && fits(t.to.to, t.to.dtype) &&
         fits(t.from.rest_from, Dtype::i16) && fits(t.to.rest_to, Dtype::i16);
}
void launch_values(StateTask t, const Launch& args) {
  t.keys = round_keys({t.p.stream, t.p.seed});
  const int64_t n_eights = takes_eights(t) ? t.p.n / 8 * 8 : 0;
  const auto launch = [&](auto* kernel, int64_t first, int64_t n_warps) {
    const unsigned blocks = blocks_of(args.n_sm, n_warps, kBlocks);
    kernel<<<blocks, kThreads, 0, args.stream>>>(t, first);
  };
  if (n_eights != 0) launch(move_values<8>, 0, ceil_div(n_eights, 256));
  if (n_eights != t.p.n) launch(move_values<1>, n_eights, ceil_div(t.p.n - n_eights, 32));
}
void launch_state(const StateTask& t, const Launch& args, void (*kernel)(StateTask)) {
  if (!is_moment_format(t.p.state)) return launch_values(t, args);
  const unsigned blocks = blocks_of(args.n_sm, ceil_div(t.p.n, t.p.group));
  kernel<<<blocks, kThreads, 0, args.stream>>>(t);
}
WeightStore store_of(const StateParams& p) {
  if (p.has_remainder) return WeightStore::remainder;
  return p.stochastic && p.state == Dtype::bf16 ? WeightStore::stochastic : WeightStore::plain;
}

}  // namespace

void load_state(const StateParams& p, const Launch& args) {
  using S = octet::LoadState;
  const bool has_rest = p.has_remainder || is_moment_format(p.state);
  const void* rest = has_rest ? args.operands[S::rest] : nullptr;
  const StateTask t{.p = p,
                    .from = {store_of(p), p.state, args.operands[S::x], rest, nullptr, nullptr},
                    .to = {.dtype = Dtype::f32, .to = args.results[S::y]}};
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
                    .attempt = p.stochastic || has_meta ? args.in<uint32_t>(S::attempt) : nullptr};
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
  const StateTask t{
      .p = {.n = p.n, .first = p.first, .stream = p.stream, .seed = p.seed},
      .from = {.from = args.operands[S::x]},
      .to = {.store = WeightStore::stochastic, .dtype = Dtype::fp16, .to = args.results[S::q]},
      .attempt = args.in<uint32_t>(S::attempt),
      .scale = args.in<float>(S::scale),
      .keeps_positive = p.keeps_positive};
  launch_values(t, args);
  check_launch("store_scaled");
}

}  // namespace octet::cuda
