// What the kernels that reduce share, and their parts of the family's list.
#pragma once

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/params/reduce.h"

namespace octet::cuda {

// Where element i of the axes lies.
__device__ __forceinline__ int64_t offset_of(const AxisList& axes, int64_t i) {
  int64_t at = 0;
  for (int k = static_cast<int>(axes.rank) - 1; k >= 0; --k) {
    const int64_t above = i / axes.extent[k];
    at += (i - above * axes.extent[k]) * axes.stride[k];
    i = above;
  }
  return at;
}

__device__ __forceinline__ void store_double(void* y, int64_t i, Dtype dtype, double v) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(y)[i] = static_cast<float>(v);
  } else {
    static_cast<uint16_t*>(y)[i] = dtype == Dtype::bf16 ? __bfloat16_as_ushort(__double2bfloat16(v))
                                                        : __half_as_ushort(__double2half(v));
  }
}

std::unique_ptr<Prepared> prepare_dot(const Request& request);

}  // namespace octet::cuda
