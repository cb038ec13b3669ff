// The step of one group by one warp, for every format, rounding and size, by the formulas of math/.
// It reads the group twice, once for the ranges, once to write: a group may have any size.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_range.cuh"
#include "backends/cuda/kernels/adamw/adamw_scaled.cuh"
#include "backends/cuda/kernels/common/element.cuh"
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

__device__ __forceinline__ float load_wide(Dtype dtype, const void* from, int64_t i) {
  if (dtype == Dtype::f32) return static_cast<const float*>(from)[i];
  const uint16_t bits = static_cast<const uint16_t*>(from)[i];
  return dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
}
__device__ __forceinline__ void store_wide(Dtype dtype, void* to, int64_t i, float x) {
  if (dtype == Dtype::f32) static_cast<float*>(to)[i] = x;
  if (dtype == Dtype::bf16) static_cast<uint16_t*>(to)[i] = from_float<Dtype::bf16>(x);
  if (dtype == Dtype::fp16) static_cast<uint16_t*>(to)[i] = from_float<Dtype::fp16>(x);
}

__device__ __forceinline__ bool is_coded(Dtype dtype) {
  return !is_wide(dtype) && dtype != Dtype::fp16;
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

template <UpdateDraw Draw>
__device__ __forceinline__ RandomStream stream_of(const AdamwCall& call) {
  return update_stream(call.p.stream, call.p.seed, call.attempt == nullptr ? 0u : *call.attempt,
                       Draw);
}

template <Formats F, Moment M>
__device__ __forceinline__ MomentCoding coding_of(const AdamwCall& call) {
  const MomentParams& p = M == Moment::first ? call.p.m : call.p.v;
  return {.dtype = p.dtype,
          .moment = M,
          .expand = p.expand,
          .stochastic = F == Formats::all && p.stochastic,
          .math = F == Formats::all && call.p.exact ? MathMode::exact : MathMode::fast};
}

__device__ __forceinline__ float load_master(const AdamwCall& call, int64_t i) {
  switch (call.p.store) {
    case WeightStore::remainder:
      return join_master({static_cast<const uint16_t*>(call.w_from)[i],
                          static_cast<const int16_t*>(call.master_from)[i]});
    case WeightStore::master:
      return static_cast<const float*>(call.master_from)[i];
    default:
      return load_wide(call.p.w, call.w_from, i);
  }
}

__device__ __forceinline__ void store_master(const AdamwCall& call, int64_t i, float w) {
  switch (call.p.store) {
    case WeightStore::remainder: {
      const MasterBits parts = split_master(w);
      static_cast<uint16_t*>(call.w_to)[i] = parts.hi;
      static_cast<int16_t*>(call.master_to)[i] = parts.lo;
      return;
    }
    case WeightStore::stochastic: {
      const auto random = stream_of<UpdateDraw::weight>(call);
      static_cast<uint16_t*>(call.w_to)[i] =
          stochastic_bf16(w, random.bits(static_cast<uint64_t>(call.origin + i)));
      return;
    }
    case WeightStore::master:
      static_cast<float*>(call.master_to)[i] = w;
      [[fallthrough]];
    default:
      store_wide(call.p.w, call.w_to, i, w);
  }
}

template <Formats F, Moment M>
__device__ float load_moment(const AdamwCall& call, int64_t i, uint32_t meta) {
  const MomentCoding coding = coding_of<F, M>(call);
  const void* from = M == Moment::first ? call.m.from : call.v.from;
  if (!is_coded(coding.dtype)) {
    const float x = load_wide(coding.dtype, from, i);
    return coding.dtype == Dtype::fp16 ? x * scale_of_v(call) : x;
  }
  const uint32_t code = static_cast<const uint8_t*>(from)[i];
  return visit_moment_codes<F>(
      coding.dtype, [&]<Dtype D>() { return detail::decode_moment<D>(coding, meta, code); });
}

template <Formats F, Moment M>
__device__ void store_moment(const AdamwCall& call, int64_t i, float x, uint32_t meta) {
  const MomentCoding coding = coding_of<F, M>(call);
  void* to = M == Moment::first ? call.m.to : call.v.to;
  constexpr UpdateDraw kDraw = M == Moment::first ? UpdateDraw::first : UpdateDraw::second;
  if (coding.dtype == Dtype::fp16) {
    const uint32_t word = store_stream(call).bits(static_cast<uint64_t>(call.origin + i));
    static_cast<uint16_t*>(to)[i] = store_fp16(x * (1.0f / scale_of_v(call)), word, true);
    return;
  }
  const uint32_t random =
      coding.stochastic ? stream_of<kDraw>(call).bits(static_cast<uint64_t>(call.origin + i)) : 0;
  if (coding.dtype == Dtype::f32) {
    static_cast<float*>(to)[i] = stored_moment(x);
  } else if (coding.dtype == Dtype::bf16) {
    static_cast<uint16_t*>(to)[i] = moment_bf16(coding, x, random);
  } else {
    const uint32_t code = meta == 0 ? 0u : visit_moment_codes<F>(coding.dtype, [&]<Dtype D>() {
      return encode_moment<D>(coding, meta, stored_moment(x), random);
    });
    static_cast<uint8_t*>(to)[i] = static_cast<uint8_t>(code);
  }
}

// The range over a warp.
__device__ __forceinline__ AbsRange range_of_warp(AbsRange range) {
  range.amax = __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(range.amax)));
  range.amin = __uint_as_float(__reduce_min_sync(0xFFFFFFFFu, __float_as_uint(range.amin)));
  return range;
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

// Elements [first, first + n), the n of one group; called by a whole warp.
template <Formats F>
__device__ __noinline__ void step_group(const AdamwCall& call, int64_t first, int64_t n) {
  const AdamwConstants k = constants_of(call);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool coded_m = is_coded(call.p.m.dtype), coded_v = is_coded(call.p.v.dtype);
  const int64_t group = first / call.p.group;
  const uint32_t old_m = coded_m ? call.m.meta_from[group] : 0;
  const uint32_t old_v = coded_v ? call.v.meta_from[group] : 0;
  const auto element = [&](int64_t i) {
    const AdamwElement old{load_master(call, i), load_moment<F, Moment::first>(call, i, old_m),
                           load_moment<F, Moment::second>(call, i, old_v)};
    AdamwElement next = adamw_element(k, old, load_wide(call.p.g, call.g, i));
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
  const uint32_t meta_m =
      meta_of<F, Moment::first>(coding_of<F, Moment::first>(call), range_of_warp(range_m));
  const uint32_t meta_v =
      meta_of<F, Moment::second>(coding_of<F, Moment::second>(call), range_of_warp(range_v));
  for (int64_t i = first + lane; i < first + n; i += 32) {
    const AdamwElement next = element(i);
    store_master(call, i, next.w);
    store_moment<F, Moment::first>(call, i, next.m, meta_m);
    store_moment<F, Moment::second>(call, i, next.v, meta_v);
  }
  __syncwarp();  // the old metadata is read by every lane before any is written
  if (lane == 0 && coded_m) call.m.meta_to[group] = meta_m;
  if (lane == 0 && coded_v) call.v.meta_to[group] = meta_v;
}

}  // namespace octet::cuda
