// From parameters and addresses to what the row kernels take; host only.
#pragma once

#include "backends/cuda/kernels/common/row_access.cuh"

namespace octet::cuda {

template <typename T>
const T* operand_at(const Launch& launch, int8_t at) {
  return at == kAbsent ? nullptr : launch.in<T>(at);
}
template <typename T>
T* result_at(const Launch& launch, int8_t at) {
  return at == kAbsent ? nullptr : launch.out<T>(at);
}

inline Matrix matrix_of(const RowOperand& operand, int64_t cols, const Launch& launch) {
  const auto* scales = operand_at<uint16_t>(launch, operand.scales_at);
  // One scale is an f32 in memory; where it is read as BF16, its upper half is that.
  if (operand.group == kOneGroup && operand.scales == Dtype::bf16) ++scales;
  return {.data = operand_at<void>(launch, operand.at),
          .scales = scales,
          .cols = cols,
          .dtype = operand.dtype,
          .scales_dtype = operand.scales,
          .group = operand.group,
          .scale_step = operand.group == kOneGroup ? 0 : 1};
}
inline Unquantized operand_of(const UnquantizedArg& arg, const Launch& launch) {
  return {const_cast<void*>(operand_at<void>(launch, arg.at)), arg.dtype};
}
inline Unquantized result_of(const UnquantizedArg& arg, const Launch& launch) {
  return {result_at<void>(launch, arg.at), arg.dtype};
}

}  // namespace octet::cuda
