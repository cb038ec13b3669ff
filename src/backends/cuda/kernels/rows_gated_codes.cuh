// Codes of silu(gate) up where both are codes of e4m3 in groups: all that a group's elements share
// is taken out of them.
//
// A product of two codes, a quarter of it, is exact in f16: 8 bits of a multiple of 2^-20 below
// 2^16. With that product p, what the group shares c, and e = exp(-gate), a result is p / d, d = c
// + c e: in f32, rounded in another order than scale by scale, so that a code may fall on the other
// side of a rounding. Two results share an inverse, of d d', where no gate of the group can make it
// overflow: at the clock that training leaves, the unit of powers and inverses is what counts. A
// NaN makes its neighbour NaN.
#pragma once

#include "backends/cuda/kernels/fast_math.cuh"
#include "backends/cuda/kernels/rows_store.cuh"

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
    // Beyond it all codes are 0 all the same; a logistic of 1 makes 0 of them, not NaN. NaN stays.
    divisor = inverse > 0x1p30f ? 0x1p30f : inverse;
  }
  // Whether d d' is finite and not too small, whatever the gates' codes.
  __device__ __forceinline__ bool is_near() const {
    return fabsf(exponent) * 448 <= 30 && divisor >= 0x1p-60f;
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

template <bool kNear>
__device__ __forceinline__ uint32_t gated_word(uint32_t gate, uint32_t up, const GatedFactors& f,
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
    const float d = fmaf(fast_exp2(x.x * f.exponent), f.divisor, f.divisor);
    const float e = fmaf(fast_exp2(x.y * f.exponent), f.divisor, f.divisor);
    if constexpr (kNear) {
      const float inverse = fast_inverse(d * e);
      v[2 * h] = p.x * e * inverse;
      v[2 * h + 1] = p.y * d * inverse;
    } else {
      v[2 * h] = p.x * fast_inverse(d);
      v[2 * h + 1] = p.y * fast_inverse(e);
    }
  }
  return pack_four<Dtype::e4m3>(v);
}
__device__ __forceinline__ uint4 gated_codes(const uint4& gate, const uint4& up,
                                             const GatedFactors& f, NanProducts& nan) {
  if (f.is_near())
    return make_uint4(
        gated_word<true>(gate.x, up.x, f, nan), gated_word<true>(gate.y, up.y, f, nan),
        gated_word<true>(gate.z, up.z, f, nan), gated_word<true>(gate.w, up.w, f, nan));
  // Gates beyond 20 are rare: word by word.
  uint4 gates = gate, ups = up, codes = {0, 0, 0, 0};
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = gated_word<false>(gates.x, ups.x, f, nan);
    gates = make_uint4(gates.y, gates.z, gates.w, 0);
    ups = make_uint4(ups.y, ups.z, ups.w, 0);
    codes = make_uint4(codes.y, codes.z, codes.w, word);
  }
  return codes;
}

}  // namespace octet::cuda
