// What a kernel is called in plans and profiles.
#pragma once

#include <string>
#include <string_view>

#include "plan/node_view.h"

namespace octet {

// The op with the dtypes of its first four operands and of its results:
// "gemm e4m3 x e4m3 x f32 -> bf16". variant: which of the op's kernels, where its types do not
// tell: "attention window bf16 x bf16 x bf16 -> bf16, f32".
std::string kernel_name(const NodeView& view, std::string_view variant = {});

}  // namespace octet
