// Codes of silu(gate) up where both are codes of e4m3 in groups: all that a group's elements share
// is taken out of them.
//
// A product of two codes, a quarter of it, is exact in f16: 8 bits of a multiple of 2^-20 below
// 2^16. With that product p, what the group shares c, and e = exp(-gate), a result is p / (c + c
// e): in f32, rounded in another order than scale by scale, so that a code may fall on the other
// side of a rounding.
#pragma once

#include "backends/cuda/kernels/common/fast_math.cuh"
#include "backends/cuda/kernels/common/row_store.cuh"

namespace octet::cuda {

// Of one group.
struct GatedFactors {
  float exponent;  // of 2, of a gate's code
  float divisor;   // c above

  __device__ __forceinline__ GatedFactors(uint16_t gate, uint16_t up, float inv_scale) {
    constexpr float kLog2E = 1.44269504088896341f;
    const float scale = to_float<Dtype::bf16>(gate);
    exponent = -kLog2E * scale;
    const float inverse = fast_inverse(4 * (scale * (to_float<Dtype::bf16>(up) * inv_scale)));
    // Where a scale is 0, so that a logistic of 1 makes 0 of it, not NaN. NaN stays.
    divisor = inverse > 0x1p100f ? 0x1p100f : inverse;
  }
};

// Whether a product of codes was NaN.
class NanProducts {
 public:
  __device__ __forceinline__ void add(const __half2& product) { top_ = __hmax2_nan(top_, product); }
  __device__ __forceinline__ bool any() const {
    return __hisnan(__low2half(top_)) || __hisnan(__high2half(top_));
  }

 private:
  __half2 top_ = __float2half2_rn(0.0f);
};

__device__ __forceinline__ uint32_t gated_codes(uint32_t gate, uint32_t up, const GatedFactors& f,
                                                NanProducts& nan) {
  __half2 gates[2], ups[2];
  decode_e4m3(gate, gates);
  decode_e4m3(up, ups);
  float v[4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const __half2 product = __hmul2(__hmul2(gates[h], __float2half2_rn(0.25f)), ups[h]);
    nan.add(product);
    const float2 x = __half22float2(gates[h]), p = __half22float2(product);
    v[2 * h] = p.x * fast_inverse(fmaf(fast_exp2(x.x * f.exponent), f.divisor, f.divisor));
    v[2 * h + 1] = p.y * fast_inverse(fmaf(fast_exp2(x.y * f.exponent), f.divisor, f.divisor));
  }
  return pack_four<Dtype::e4m3>(v);
}
__device__ __forceinline__ uint4 gated_codes(const uint4& gate, const uint4& up,
                                             const GatedFactors& f, NanProducts& nan) {
  return make_uint4(gated_codes(gate.x, up.x, f, nan), gated_codes(gate.y, up.y, f, nan),
                    gated_codes(gate.z, up.z, f, nan), gated_codes(gate.w, up.w, f, nan));
}

}  // namespace octet::cuda
