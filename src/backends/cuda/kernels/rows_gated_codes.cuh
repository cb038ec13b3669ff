// Codes of silu(gate) up where both are codes of e4m3 in groups: all that a group's elements share
// is taken out of them.
//
// A product of two codes, a quarter of it, is exact in f16: 8 bits of a multiple of 2^-20 below
// 2^16. What is left to each element is the logistic of its gate, that product, and one factor: in
// f32, rounded in another order than scale by scale, so that a code may fall on the other side of a
// rounding.
#pragma once

#include "backends/cuda/kernels/fast_math.cuh"
#include "backends/cuda/kernels/rows_store.cuh"

namespace octet::cuda {

// Of one group.
struct GatedFactors {
  float exponent;  // of 2, of a gate's code
  float result;

  __device__ __forceinline__ GatedFactors(uint16_t gate, uint16_t up, float inv_scale) {
    constexpr float kLog2E = 1.44269504088896341f;
    const float scale = to_float<Dtype::bf16>(gate);
    exponent = -kLog2E * scale;
    result = 4 * (scale * (to_float<Dtype::bf16>(up) * inv_scale));
  }
};

__device__ __forceinline__ __half2 e4m3_pair(uint32_t codes) {
  return __half2(
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes & 0xFFFFu), __NV_E4M3));
}

__device__ __forceinline__ uint32_t gated_codes(uint32_t gate, uint32_t up, const GatedFactors& f) {
  float v[4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __half2 g = e4m3_pair(gate >> (16 * h)), u = e4m3_pair(up >> (16 * h));
    const float2 x = __half22float2(g);
    const float2 p = __half22float2(__hmul2(__hmul2(g, __float2half2_rn(0.25f)), u));
    v[2 * h] = p.x * fast_inverse(1.0f + fast_exp2(x.x * f.exponent));
    v[2 * h + 1] = p.y * fast_inverse(1.0f + fast_exp2(x.y * f.exponent));
  }
  return pack_codes<Dtype::e4m3>(v, f.result);
}
__device__ __forceinline__ uint4 gated_codes(const uint4& gate, const uint4& up,
                                             const GatedFactors& f) {
  return make_uint4(gated_codes(gate.x, up.x, f), gated_codes(gate.y, up.y, f),
                    gated_codes(gate.z, up.z, f), gated_codes(gate.w, up.w, f));
}

}  // namespace octet::cuda
