// The list of the module's kernels.
#pragma once

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

// Throws ModuleError for an enumerator without kernel.
PrepareFn find_kernel(int32_t kernel);

}  // namespace octet::cuda
