// The step of one group by one warp, for every format, rounding and size, by the formulas of math/.
// It reads the group twice, once for the ranges, once to write: a group may have any size.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_values.cuh"
#include "math/moment_codes.h"

namespace octet::cuda {

// What a kernel compiles: everything, or E4M3 and E5M2 rounded to nearest with fast powers.
enum class Formats : uint8_t { all, ieee };

// Calls f.template operator()<D>() for the format of a moment's codes.
template <Formats F, typename Fn>
__device__ __forceinline__ auto visit_moment_codes(Dtype dtype, Fn&& f) {
  if constexpr (F == Formats::ieee) {
    return dtype == Dtype::e4m3 ? f.template operator()<Dtype::e4m3>()
                                : f.template operator()<Dtype::e5m2>();
  }
  return visit_quantized<is_moment_format>(dtype, f);
}
__device__ __forceinline__ bool is_coded(Dtype dtype) {
  return !is_high_precision(dtype);
}

__device__ __forceinline__ AdamwConstants constants_of(const AdamwCall& call) {
  return {.beta1 = call.p.beta1,
          .beta2 = call.p.beta2,
          .eps = call.p.eps,
          .weight_decay = call.p.weight_decay,
          .lr = *call.lr,
          .c1 = *call.c1,
          .c2 = *call.c2,
          .grad_scale = *call.grad_scale};
}
__device__ __forceinline__ RandomStream stream_of(const AdamwCall& call, UpdateDraw draw) {
  return update_stream(call.p.stream, call.p.seed, *call.attempt, draw);
}
// The second moment in FP16 is read by a scale, a power of two, and rounded as store_scaled does.
__device__ __forceinline__ float scale_of_v(const AdamwCall& call) {
  return __uint_as_float(*call.v.meta_from);
}
__device__ __forceinline__ RandomStream store_stream(const AdamwCall& call) {
  return {.name = call.p.stream, .seed = call.p.seed, .step = *call.attempt, .micro_batch = 0};
}

template <Moment M>
__device__ __forceinline__ const MomentPlace& place_of(const AdamwCall& call) {
  return M == Moment::first ? call.m : call.v;
}
template <Moment M>
inline constexpr UpdateDraw kDrawOf = M == Moment::first ? UpdateDraw::first : UpdateDraw::second;

template <Formats F, Moment M>
__device__ __forceinline__ MomentCoding coding_of(const AdamwCall& call) {
  const MomentParams& p = M == Moment::first ? call.p.m : call.p.v;
  return {.dtype = p.dtype,
          .moment = M,
          .expand = p.expand,
          .stochastic = F == Formats::all && p.stochastic,
          .math = F == Formats::all && call.p.exact ? MathMode::exact : MathMode::fast};
}

template <Formats F, Moment M>
__device__ float load_moment(const AdamwCall& call, int64_t i, uint32_t meta) {
  const MomentCoding coding = coding_of<F, M>(call);
  const void* from = place_of<M>(call).from;
  if (is_coded(coding.dtype)) {
    const uint32_t code = static_cast<const uint8_t*>(from)[i];
    return visit_moment_codes<F>(
        coding.dtype, [&]<Dtype D>() { return detail::decode_moment<D>(coding, meta, code); });
  }
  const float x = value_of(coding.dtype, load_run<1>(coding.dtype, from, i), 0);
  return coding.dtype == Dtype::fp16 ? x * scale_of_v(call) : x;
}
template <Formats F, Moment M>
__device__ void store_moment(const AdamwCall& call, int64_t i, float x, uint32_t meta) {
  const MomentCoding coding = coding_of<F, M>(call);
  void* to = place_of<M>(call).to;
  if (coding.dtype == Dtype::fp16) {
    const uint32_t word = draw<1>(store_stream(call), call.origin + i).at[0];
    static_cast<uint16_t*>(to)[i] = store_fp16(x * (1.0f / scale_of_v(call)), word, true);
    return;
  }
  Run<1> word{};
  if (coding.stochastic) word = draw<1>(stream_of(call, kDrawOf<M>), call.origin + i);
  if (!is_coded(coding.dtype)) return store_moments<1>(coding, to, i, {x}, word);
  const uint32_t code = meta == 0 ? 0u : visit_moment_codes<F>(coding.dtype, [&]<Dtype D>() {
    return encode_moment<D>(coding, meta, stored_moment(x), word.at[0]);
  });
  static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(code);
}

// The choice of a group's exponent: the limits of math/range.h as one integer each, exponent << 23
// | fraction, in the order of values.
struct RangeKeys {
  uint32_t limit[kMaxK16];
};
OCTET_HOST_DEVICE constexpr uint32_t range_key(const Range& range) {
  return (static_cast<uint32_t>(range.exponent) << 23) | (bits_of(range.significand) & 0x007FFFFFu);
}
template <Dtype D, Moment M>
constexpr RangeKeys make_range_keys() {
  RangeKeys keys{};
  for (int j = 0; j < kMaxK16; ++j) keys.limit[j] = range_key(kExpansion<D, M>.thresholds.limit[j]);
  return keys;
}
template <Dtype D, Moment M>
__device__ const RangeKeys kRangeKeys = make_range_keys<D, M>();

// log2 of a range or a limit, within 0.01.
__device__ __forceinline__ float rough_log2_of_key(uint32_t key) {
  const float f = __uint_as_float((key & 0x007FFFFFu) | 0x3F800000u) - 1.0f;
  return static_cast<float>(key >> 23) + f * (1.3437f - 0.3437f * f);
}
// The largest j with key <= limit[j - 1], at least 1. The limits alone decide; the nearer the guess
// the sooner.
__device__ __forceinline__ int choose_k16(uint32_t key, float guess, const uint32_t* limit) {
  int k16 = guess < kMaxK16 ? max(static_cast<int>(guess), 1) : kMaxK16;
  while (k16 > 1 && key > limit[k16 - 1]) --k16;
  while (k16 < kMaxK16 && key <= limit[k16]) ++k16;
  return k16;
}

template <Formats F, Moment M>
__device__ uint32_t meta_of(const MomentCoding& coding, const AbsRange& range) {
  if (!is_coded(coding.dtype) || !(range.amax >= kMinExpansionAmax)) return 0;
  const uint32_t amax24 = expansion_amax24(range.amax);
  if (!coding.expand) return (amax24 << 8) | kPlainK16;
  const uint32_t key = range_key(octet::range_of(__uint_as_float(amax24 << 7), range.amin));
  const int k16 = visit_moment_codes<F>(coding.dtype, [&]<Dtype D>() {
    const uint32_t* limit = kRangeKeys<D, M>.limit;
    const float guess = 16.0f * rough_log2_of_key(limit[15]) / rough_log2_of_key(key);
    return choose_k16(key, guess, limit);
  });
  return (amax24 << 8) | static_cast<uint32_t>(k16);
}
// The range over a warp.
__device__ __forceinline__ AbsRange range_of_warp(AbsRange range) {
  range.amax = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(range.amax)));
  range.amin = __uint_as_float(__reduce_min_sync(~0u, __float_as_uint(range.amin)));
  return range;
}

// Elements [first, first + n), the n of one group; called by a whole warp.
template <Formats F>
__device__ __noinline__ void step_group(const AdamwCall& call, int64_t first, int64_t n) {
  constexpr Moment kM = Moment::first, kV = Moment::second;
  const AdamwConstants k = constants_of(call);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool coded_m = is_coded(call.p.m.dtype), coded_v = is_coded(call.p.v.dtype);
  const int64_t group = first / call.p.group;
  const uint32_t old_m = coded_m ? call.m.meta_from[group] : 0;
  const uint32_t old_v = coded_v ? call.v.meta_from[group] : 0;
  const auto element = [&](int64_t i) {
    const WeightPlace weight = weight_of(call);
    const AdamwElement old{weight_at(weight, load_weights<1>(weight, i), 0),
                           load_moment<F, kM>(call, i, old_m), load_moment<F, kV>(call, i, old_v)};
    const float g = value_of(call.p.g, load_run<1>(call.p.g, call.g, i), 0);
    AdamwElement next = adamw_element(k, old, g);
    if (!coded_m && !coded_v) next.m = first_beside(next.m, next.v);
    return next;
  };
  AbsRange range_m, range_v;
  if (coded_m || coded_v) {
    for (int64_t i = first + lane; i < first + n; i += 32) {
      const AdamwElement next = element(i);
      range_m = join(range_m, stored_moment(next.m));
      range_v = join(range_v, stored_moment(next.v));
    }
  }
  const uint32_t meta_m = meta_of<F, kM>(coding_of<F, kM>(call), range_of_warp(range_m));
  const uint32_t meta_v = meta_of<F, kV>(coding_of<F, kV>(call), range_of_warp(range_v));
  for (int64_t i = first + lane; i < first + n; i += 32) {
    const AdamwElement next = element(i);
    Run<1> word{};
    if (call.p.store == WeightStore::stochastic)
      word = draw<1>(stream_of(call, UpdateDraw::weight), call.origin + i);
    store_weights<1>(weight_of(call), i, {next.w}, word);
    store_moment<F, kM>(call, i, next.m, meta_m);
    store_moment<F, kV>(call, i, next.v, meta_v);
  }
  __syncwarp();  // the old metadata is read by every lane before any is written
  if (lane == 0 && coded_m) call.m.meta_to[group] = meta_m;
  if (lane == 0 && coded_v) call.v.meta_to[group] = meta_v;
}

}  // namespace octet::cuda
