// Name of a kernel in plans and profiles.
#pragma once

#include <string>

#include "plan/kernel_row.h"

namespace octet {

// The op with the types of its first four operands and of its results, and the row:
// "gemm e4m3:tensor x e4m3:tensor x f32 -> bf16: fp8".
std::string kernel_name(const NodeView& view, const KernelRow& row);

}  // namespace octet
