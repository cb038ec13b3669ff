#include "backends/cpu/reference/kernels.h"

#include "base/error.h"

namespace octet::reference {

Kernel kernel(OpCode op) {
  static constexpr Kernel kKernels[] = {
#define OP(op, ...) reference::op,
#include "ir/ops/ops.def"
  };
  CHECK(static_cast<int>(op) < kOpCount);
  return kKernels[static_cast<size_t>(op)];
}

}  // namespace octet::reference
