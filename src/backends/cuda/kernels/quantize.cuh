// What the kernels of scales and codes share, and their parts of the family's list.
#pragma once

#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/params/quantize.h"
#include "formats/group_scale.h"

namespace octet::cuda {

inline constexpr float kMinScale = 0x1p-100f;

// formats/quantize.h's scale_from_amax: f32, and rounded to BF16.
__device__ __forceinline__ float tensor_scale(float amax, float inv_target) {
  const float scale = amax * inv_target;
  return amax == 0.0f ? 1.0f : scale < kMinScale ? kMinScale : scale;
}
__device__ __forceinline__ uint16_t group_scale(float amax, float inv_target) {
  return from_float<Dtype::bf16>(
      fminf(tensor_scale(amax, inv_target), largest_group_scale(inv_target)));
}

std::unique_ptr<Prepared> prepare_amax(const Request& request);
std::unique_ptr<Prepared> prepare_any_of(const Request& request);
std::unique_ptr<Prepared> prepare_scale(const Request& request);
std::unique_ptr<Prepared> prepare_amax_quantize(const Request& request);
std::unique_ptr<Prepared> prepare_groups(const Request& request);
std::unique_ptr<Prepared> prepare_dequantize(const Request& request);

}  // namespace octet::cuda
