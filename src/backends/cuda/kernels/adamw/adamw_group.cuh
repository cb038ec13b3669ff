// The step of elements of any formats, by the formulas of math/: of a group by a warp, which reads
// it twice, once for the ranges, once to write, so that it may have any size; or of a few elements
// without groups by a thread.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_values.cuh"
#include "math/moment_codes.h"

namespace octet::cuda {

// Formats of moments that a kernel compiles: all; E4M3 and E5M2 rounded to nearest with fast
// powers; none: f32 and bf16, several elements at once.
enum class Formats : uint8_t { all, ieee, none };
template <Formats F>
inline constexpr int kRunOf = F == Formats::none ? static_cast<int>(kWideRun) : 1;

// Calls f.template operator()<D>() for the format of a moment's codes.
template <Formats F, typename Fn>
__device__ __forceinline__ auto visit_moment_codes(Dtype dtype, Fn&& f) {
  if constexpr (F == Formats::ieee) {
    return dtype == Dtype::e4m3 ? f.template operator()<Dtype::e4m3>()
                                : f.template operator()<Dtype::e5m2>();
  }
  return visit_quantized<is_moment_format>(dtype, f);
}
template <Formats F = Formats::all>
__device__ __forceinline__ bool is_coded(Dtype dtype) {
  return F != Formats::none && !is_high_precision(dtype);
}

__device__ __forceinline__ AdamwConstants constants_of(const AdamwCall& call) {
  const AdamwParams& p = call.p;
  return {p.beta1,        p.beta2,  p.rest1,  p.rest2,  p.eps,
          p.weight_decay, *call.lr, *call.c1, *call.c2, *call.grad_scale};
}
template <int N>
__device__ __forceinline__ Run<N> words_of(const AdamwCall& call, UpdateDraw what, int64_t i,
                                           bool is_drawn) {
  if (!is_drawn) return {};
  return draw<N>(stream_of(call, what), call.origin + i);
}
template <Formats F, Moment M>
__device__ __forceinline__ MomentCoding coding_of(const AdamwCall& call) {
  const MomentParams& p = M == Moment::first ? call.p.m : call.p.v;
  return {.dtype = p.dtype,
          .moment = M,
          .expand = p.expand,
          .stochastic = F != Formats::ieee && p.stochastic,
          .math = F == Formats::all && call.p.exact ? MathMode::exact : MathMode::fast};
}

// Consecutive elements as they are read; their values.
template <Formats F>
struct RawElements {
  Run<kRunOf<F>> g, m, v, w;
};
template <Formats F>
struct Elements {
  float m[kRunOf<F>], v[kRunOf<F>], w[kRunOf<F>];
};

template <Formats F>
__device__ __forceinline__ RawElements<F> load_elements(const AdamwCall& call, int64_t i) {
  constexpr int kN = kRunOf<F>;
  const auto moments = [&](Dtype dtype, const void* from) -> Run<kN> {
    if (is_coded<F>(dtype)) return {static_cast<const uint8_t*>(from)[i]};
    return load_run<kN>(dtype, from, i);
  };
  return {load_run<kN>(call.p.g, call.g, i), moments(call.p.m.dtype, call.m.from),
          moments(call.p.v.dtype, call.v.from), load_weights<kN>(weight_of(call), i)};
}
template <Formats F, Moment M, int N>
__device__ __forceinline__ void moments_of(const AdamwCall& call, const Run<N>& run, uint32_t meta,
                                           float (&x)[N]) {
  const MomentCoding coding = coding_of<F, M>(call);
  if (is_coded<F>(coding.dtype)) {
    x[0] = visit_moment_codes<F>(
        coding.dtype, [&]<Dtype D>() { return detail::decode_moment<D>(coding, meta, run.at[0]); });
    return;
  }
  values_of(coding.dtype, run, x);
  if (F != Formats::none && coding.dtype == Dtype::fp16) x[0] *= scale_of_v(call);
}
// Elements that follow them; metadata of codes.
template <Formats F>
__device__ __forceinline__ Elements<F> next_elements(const AdamwCall& call, const AdamwConstants& k,
                                                     const RawElements<F>& raw, uint32_t meta_m,
                                                     uint32_t meta_v) {
  Elements<F> x;
  float g[kRunOf<F>];
  values_of(call.p.g, raw.g, g);
  moments_of<F, Moment::first>(call, raw.m, meta_m, x.m);
  moments_of<F, Moment::second>(call, raw.v, meta_v, x.v);
  weights_of(weight_of(call), raw.w, x.w);
  const bool no_codes = !is_coded<F>(call.p.m.dtype) && !is_coded<F>(call.p.v.dtype);
#pragma unroll
  for (int j = 0; j < kRunOf<F>; ++j) {
    const AdamwElement next = adamw_element(k, {x.w[j], x.m[j], x.v[j]}, g[j]);
    x.w[j] = next.w, x.v[j] = next.v;
    x.m[j] = no_codes ? first_beside(next.m, next.v) : next.m;
  }
  return x;
}
template <Formats F, Moment M, int N>
__device__ __forceinline__ void store_moments(const AdamwCall& call, int64_t i, const float (&x)[N],
                                              uint32_t meta) {
  const MomentCoding coding = coding_of<F, M>(call);
  void* to = M == Moment::first ? call.m.to : call.v.to;
  if (F != Formats::none && coding.dtype == Dtype::fp16) return store_scaled_v<N>(call, i, x);
  constexpr UpdateDraw kDraw = M == Moment::first ? UpdateDraw::first : UpdateDraw::second;
  const Run<N> words = words_of<N>(call, kDraw, i, coding.stochastic);
  if (is_coded<F>(coding.dtype)) {
    const uint32_t code = meta == 0 ? 0u : visit_moment_codes<F>(coding.dtype, [&]<Dtype D>() {
      return encode_moment<D>(coding, meta, stored_moment(x[0]), words.at[0]);
    });
    static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(code);
    return;
  }
  Run<N> run{};
  if (coding.dtype == Dtype::f32) {
#pragma unroll
    for (int j = 0; j < N; ++j) run.at[j] = __float_as_uint(stored_moment(x[j]));
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) put_half(run, j, moment_bf16(coding, x[j], words.at[j]));
  }
  store_run(coding.dtype, to, i, run);
}
template <Formats F>
__device__ __forceinline__ void store_elements(const AdamwCall& call, int64_t i,
                                               const Elements<F>& x, uint32_t meta_m,
                                               uint32_t meta_v) {
  const bool is_drawn = call.p.store == WeightStore::stochastic;
  store_weights(weight_of(call), i, x.w,
                words_of<kRunOf<F>>(call, UpdateDraw::weight, i, is_drawn));
  store_moments<F, Moment::first>(call, i, x.m, meta_m);
  store_moments<F, Moment::second>(call, i, x.v, meta_v);
}

// The limits of math/range.h.
template <Dtype D, Moment M>
__device__ const RangeThresholds kThresholds = kExpansion<D, M>.thresholds;

// A group's metadata by its range; up: AmaxRounding's.
template <Formats F, Moment M>
__device__ uint32_t meta_of(const MomentCoding& coding, const AbsRange& range, uint32_t up) {
  if (!is_coded(coding.dtype) || !(range.amax >= kMinExpansionAmax)) return 0;
  if (!coding.expand) return (expansion_amax24(range.amax, up) << 8) | kPlainK16;
  return visit_moment_codes<F>(coding.dtype, [&]<Dtype D>() {
    return expansion_meta(moment_range(range), kThresholds<D, M>, up);
  });
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
  const AdamwConstants k = constants_of(call);
  const MomentCoding m = coding_of<F, Moment::first>(call), v = coding_of<F, Moment::second>(call);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t group = first / call.p.group;
  const uint32_t old_m = is_coded(m.dtype) ? call.m.meta_from[group] : 0;
  const uint32_t old_v = is_coded(v.dtype) ? call.v.meta_from[group] : 0;
  const auto next = [&](int64_t i) {
    return next_elements<F>(call, k, load_elements<F>(call, i), old_m, old_v);
  };
  AbsRange range_m, range_v;
  if (is_coded(m.dtype) || is_coded(v.dtype)) {
    for (int64_t i = first + lane; i < first + n; i += 32) {
      const Elements<F> x = next(i);
      range_m = join(range_m, stored_moment(x.m[0]));
      range_v = join(range_v, stored_moment(x.v[0]));
    }
  }
  const auto up = [&](const MomentCoding& coding, UpdateDraw what) {
    if (!is_coded(coding.dtype)) return 0u;
    return amax_rounding(coding, stream_of(call, what)).up(call.origin + first);
  };
  const uint32_t meta_m =
      meta_of<F, Moment::first>(m, range_of_warp(range_m), up(m, UpdateDraw::first));
  const uint32_t meta_v =
      meta_of<F, Moment::second>(v, range_of_warp(range_v), up(v, UpdateDraw::second));
  for (int64_t i = first + lane; i < first + n; i += 32)
    store_elements<F>(call, i, next(i), meta_m, meta_v);
  __syncwarp();  // the old metadata is read by every lane before any is written
  if (lane == 0 && is_coded(m.dtype)) call.m.meta_to[group] = meta_m;
  if (lane == 0 && is_coded(v.dtype)) call.v.meta_to[group] = meta_v;
}

}  // namespace octet::cuda
