// Codes that the tile kernels read and write without tables, the extent of a group that several
// lanes hold, and what all tiles of a tensor have in common.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/adamw/adamw_codec.cuh"

namespace octet::cuda {

__device__ __forceinline__ float k_of(uint32_t meta) {  // without the slow conversion
  return (__uint_as_float(0x4B000000u | (meta & 0xFFu)) - 8388608.0f) * 0.0625f;
}
// E4M3 or E5M2, whether expanded or not. Returns whether the metadata or a code is out of what the
// powers take.
template <Moment M>
__device__ __forceinline__ bool decode_codes(const MomentParams& p, const uint32_t* codes,
                                             uint32_t meta, float (&x)[kRun]) {
  const float amax = meta_amax(meta);
  return visit_moment_codes<Formats::ieee>(p.dtype, [&]<Dtype D>() {
    constexpr auto kKind = D == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2;
    constexpr float kTarget = kFormatRow<D>.amax_target;
    constexpr uint32_t kSpecial = D == Dtype::e4m3 ? 0x01010101u : 0x04040404u;  // to bit 7
    bool far = false;
#pragma unroll
    for (int j = 0; j < kRun; j += 2) {
      const auto pair = static_cast<__nv_fp8x2_storage_t>(codes[j / 4] >> (j % 4 * 8));
      const float2 two = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(pair, kKind)));
      x[j] = two.x, x[j + 1] = two.y;
    }
    if (p.expand) {
      const float k = meta == 0 ? 1.0f : k_of(meta);
      const float rough = fast_inverse(k), top = fast_log2(kTarget);
      const float inv_k = __fmaf_rn(__fmaf_rn(-k, rough, 1.0f), rough, rough);
#pragma unroll
      for (float& q : x) q = copysignf(fast_exp2((fast_log2(fabsf(q)) - top) * inv_k) * amax, q);
      const float lowest = -kLog2Range<D> * inv_k;
      far =
          meta != 0 && !(lowest > -125.0f && lowest + fast_log2(amax) > -125.0f && amax < 0x1p125f);
    } else {
#pragma unroll
      for (float& q : x) q = __fdiv_rn(q, kTarget) * amax;
    }
    // Inf and NaN carry; a second moment is not negative.
    uint32_t odd = ((codes[0] & 0x7F7F7F7Fu) + kSpecial) | ((codes[1] & 0x7F7F7F7Fu) + kSpecial);
    if (M == Moment::second) odd |= codes[0] | codes[1];
    return far || (odd & 0x80808080u) != 0;
  });
}
// Codes of values with this metadata; 0 for metadata 0.
template <Moment M>
__device__ __forceinline__ uint2 encode_codes(const MomentParams& p, const float* x,
                                              uint32_t meta) {
  const float amax = meta_amax(meta);
  float y[kRun];
  return visit_moment_codes<Formats::ieee>(p.dtype, [&]<Dtype D>() -> uint2 {
    constexpr float kMin = octet::decode<D>(kFormatRow<D>.min_code);
    if (p.expand) {
      const float k = k_of(meta), inverse = fast_inverse(amax);
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        const float log2_ratio = fast_log2(fabsf(x[j]) * inverse);
        y[j] = copysignf(fast_exp2(__fmaf_rn(log2_ratio, k, kLog2Target<D>)), x[j]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kRun; ++j) {
        float size = __fdiv_rn(fabsf(x[j]), amax) * kFormatRow<D>.amax_target;
        if (M == Moment::second && x[j] != 0.0f) size = fmaxf(size, kMin);
        y[j] = copysignf(size, x[j]);
      }
    }
    return meta == 0 ? uint2{0, 0} : encode8<D>(y, 1.0f);
  });
}
// Magnitudes that the fast powers do not take, and Inf.
__device__ __forceinline__ bool is_far(const MomentParams& p, const AbsRange& range) {
  if (!(range.amax >= kMinExpansionAmax)) return false;
  if (!p.expand) return !is_finite(range.amax);
  return !(range.amax <= 0x1p100f && range.amin >= fmaxf(0x1p-126f, range.amax * 0x1p-100f));
}

// Extent of a lane's m, or of v, not negative; without zeros, if they do not count for amin.
template <Moment M, bool kZerosCount, int N>
__device__ __forceinline__ Extent extent_of(const float (&x)[N]) {
  const auto least = [](float magnitude) {
    const uint32_t bits = __float_as_uint(magnitude);
    return kZerosCount || bits != 0 ? bits : kF32Inf;
  };
  constexpr int kN = M == Moment::first ? N / 2 : N;
  uint32_t most[kN + 1], lower[kN + 1];
#pragma unroll
  for (int j = 0; j < kN; ++j) {
    if constexpr (M == Moment::first) {  // only two of a comparison may be signed: pairs first
      const float a = fabsf(x[2 * j]), b = fabsf(x[2 * j + 1]);
      most[j] = __float_as_uint(fmaxf(a, b));
      lower[j] = kZerosCount ? __float_as_uint(fminf(a, b)) : min(least(a), least(b));
    } else {
      most[j] = __float_as_uint(x[j]), lower[j] = least(x[j]);
    }
  }
  most[kN] = most[0], lower[kN] = lower[0];
  Extent e{most[0], lower[0]};
#pragma unroll
  for (int j = 1; j < kN + 1; j += 2) {
    e.amax = __vimax3_u32(e.amax, most[j], most[j + 1]);
    e.amin = __vimin3_u32(e.amin, lower[j], lower[j + 1]);
  }
  return e;
}
// Over the lanes of a group: of the first half of them that of m, of the others that of v, or m's
// where v is no code.
template <Codec C, bool kZerosCount>
__device__ __forceinline__ Extent group_extent(const float (&m)[kEachOf<C>],
                                               const float (&v)[kEachOf<C>], bool second) {
  const Extent of_m = extent_of<Moment::first, kZerosCount>(m);
  const Extent of_v = kBothCoded<C> ? extent_of<Moment::second, kZerosCount>(v) : of_m;
  Extent sent = second ? of_m : of_v, kept = second ? of_v : of_m;
#pragma unroll
  for (int step = kLanesOf<C> / 2; step > 0; step /= 2) {
    kept = {max(kept.amax, __shfl_xor_sync(~0u, sent.amax, step)),
            min(kept.amin, __shfl_xor_sync(~0u, sent.amin, step))};
    sent = kept;
  }
  return kept;
}

// x behind an optimization barrier: the compiler keeps it in a register instead of computing it
// again.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  asm("" : "+r"(x));
  return x;
}
__device__ __forceinline__ float opaque(float x) {
  return __uint_as_float(opaque(__float_as_uint(x)));
}

// Common part of all tiles of a tensor.
template <Codec C>
struct Common {
  std::conditional_t<C == Codec::expanded, StepConstants, AdamwConstants> k;
  uint32_t step;                  // of the random words
  uint32_t amax_of_m, amax_of_v;  // the words of AmaxRounding
};
template <Codec C, WeightStore S>
__device__ __forceinline__ Common<C> common_of(const AdamwCall& call) {
  const uint32_t step = S == WeightStore::stochastic ? *call.attempt : 0;
  const auto word = [&](UpdateDraw what) { return amax_rounding({}, stream_of(call, what)).word; };
  const uint32_t m = word(UpdateDraw::first), v = kBothCoded<C> ? word(UpdateDraw::second) : m;
  if constexpr (C == Codec::expanded)
    return {step_constants(constants_of(call)), step, m, v};
  else
    return {constants_of(call), step, m, v};
}

// The new values of a lane's elements.
template <Codec C>
struct NewValues {
  float m[kEachOf<C>], v[kEachOf<C>], w[kEachOf<C>];
  uint32_t up;  // AmaxRounding's, of the half group whose metadata the lane makes
};

// lr / c1 / (sqrt(v / c2) + eps) of four elements: four inverses by one.
__device__ __forceinline__ void invert_four(const float (&size)[4], float (&inverse)[4]) {
  const float low = size[0] * size[1], high = size[2] * size[3];
  const float all = fast_inverse(low * high);
  const float of_low = all * high, of_high = all * low;
  inverse[0] = size[1] * of_low, inverse[1] = size[0] * of_low;
  inverse[2] = size[3] * of_high, inverse[3] = size[2] * of_high;
}

}  // namespace octet::cuda
