#include "backends/cpu/reference/kernels.h"

#include "base/error.h"
#include "ir/ops/list.h"

namespace octet::reference {
namespace {

// A composed op has no function, so none may be named.
#define OP(op, ...)                \
  []<bool kComposed>() -> Kernel { \
    if constexpr (kComposed)       \
      return nullptr;              \
    else                           \
      return reference::op;        \
  }.template operator()<ops::kRows[static_cast<size_t>(OpCode::op)].is_composed>(),
constexpr Kernel kKernels[] = {
#include "ir/ops/ops.def"
};

}  // namespace

Kernel kernel(OpCode op) {
  CHECK(static_cast<int>(op) < kOpCount);
  return kKernels[static_cast<size_t>(op)];
}

}  // namespace octet::reference
