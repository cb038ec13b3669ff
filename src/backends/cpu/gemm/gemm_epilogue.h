// The last step of a product tile: C = alpha * acc + bias + addend in f32, in that order, one
// rounding on store.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

struct GemmEpilogue {
  const float* acc = nullptr;  // [rows, acc_stride]
  int64_t acc_stride = 0;
  Out c = {};
  int64_t stride = 0;  // of C and the addend
  float alpha = 1.0f;
  In bias = {};    // optional, [cols]
  In addend = {};  // optional, as C, and may be it
};
void gemm_epilogue(const GemmEpilogue& args, int64_t rows, int64_t cols);

}  // namespace octet::cpu
