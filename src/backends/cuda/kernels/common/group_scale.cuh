// formats/quantize.h's scale_from_amax: f32, and rounded to BF16.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "formats/group_scale.h"

namespace octet::cuda {

inline constexpr float kMinScale = 0x1p-100f;

__device__ __forceinline__ float tensor_scale(float amax, float inv_target) {
  const float scale = amax * inv_target;
  return amax == 0.0f ? 1.0f : scale < kMinScale ? kMinScale : scale;
}
__device__ __forceinline__ uint16_t group_scale(float amax, float inv_target) {
  return from_float<Dtype::bf16>(
      fminf(tensor_scale(amax, inv_target), largest_group_scale(inv_target)));
}

}  // namespace octet::cuda
