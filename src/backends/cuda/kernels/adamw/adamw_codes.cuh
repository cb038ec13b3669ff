// Codes that the tile kernels read and write without tables.
#pragma once

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
// Of values with this metadata; 0 for metadata 0.
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

}  // namespace octet::cuda
