// What a kernel is called in plans and profiles.
#pragma once

#include <string>

#include "plan/node_view.h"

namespace octet {

// The op with the dtypes of its first four operands and of its results:
// "gemm e4m3 x e4m3 x f32 -> bf16".
std::string kernel_name(const NodeView& view);

}  // namespace octet
