// Codes of a gated activation of codes in groups: scale by scale, as values that are not codes are
// made.
#pragma once

#include "backends/cuda/kernels/common/row_store.cuh"
#include "math/activation.h"

namespace octet::cuda {

// Scales of one group.
struct GatedScales {
  float gate, up, inverse;  // inverse: of the result's scale

  __device__ __forceinline__ GatedScales(uint16_t gate_scale, uint16_t up_scale, float inv_scale)
      : gate(to_float<Dtype::bf16>(gate_scale)),
        up(to_float<Dtype::bf16>(up_scale)),
        inverse(inv_scale) {}
};

__device__ __forceinline__ uint32_t gated_codes(uint32_t gate, uint32_t up, const GatedScales& s) {
  float x[4], y[4];
  unpack_e4m3(gate, s.gate, x);
  unpack_e4m3(up, s.up, y);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = gated_silu(x[i], y[i]);
  return pack_codes<Dtype::e4m3>(x, s.inverse);
}
__device__ __forceinline__ uint4 gated_codes(const uint4& gate, const uint4& up,
                                             const GatedScales& s) {
  return make_uint4(gated_codes(gate.x, up.x, s), gated_codes(gate.y, up.y, s),
                    gated_codes(gate.z, up.z, s), gated_codes(gate.w, up.w, s));
}

}  // namespace octet::cuda
