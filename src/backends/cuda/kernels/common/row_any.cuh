// Row kernels' operands and results of any type, one element at a time.
#pragma once

#include "backends/cuda/kernels/common/row_store.cuh"

namespace octet::cuda {

// One element of any type.
__device__ __forceinline__ float load_any(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::f32:
      return static_cast<const float*>(data)[i];
    case Dtype::bf16:
      return to_float<Dtype::bf16>(static_cast<const uint16_t*>(data)[i]);
    case Dtype::fp16:
      return to_float<Dtype::fp16>(static_cast<const uint16_t*>(data)[i]);
    default:
      return visit_quantized<is_gemm_operand>(
          dtype, [&]<Dtype D>() { return to_float<D>(static_cast<const uint8_t*>(data)[i]); });
  }
}
__device__ __forceinline__ float load_any(const Matrix& m, int64_t row, int64_t col) {
  const float value = load_any(m.data, m.dtype, row * m.cols + col);
  if (m.group == 0) return value;
  if (m.group == kOneGroup) return value * load_any(m.scales, m.scales_dtype, 0);
  const int64_t per_row = (m.cols + m.group - 1) / m.group;
  return value * load_any(m.scales, m.scales_dtype, row * per_row + col / m.group);
}
__device__ __forceinline__ float load_or(const Unquantized& v, int64_t i, float otherwise) {
  return v.data == nullptr ? otherwise : load_any(v.data, v.dtype, i);
}
__device__ __forceinline__ void store_any(const Unquantized& y, int64_t i, float value) {
  if (y.dtype == Dtype::f32) {
    static_cast<float*>(y.data)[i] = value;
  } else if (y.dtype == Dtype::bf16) {
    static_cast<uint16_t*>(y.data)[i] = from_float<Dtype::bf16>(value);
  } else {
    static_cast<uint16_t*>(y.data)[i] = from_float<Dtype::fp16>(value);
  }
}
__device__ __forceinline__ uint8_t encode_any(Dtype dtype, float value) {
  return visit_quantized<is_gemm_operand>(
      dtype, [&]<Dtype D>() -> uint8_t { return from_float<D>(value); });
}

}  // namespace octet::cuda
