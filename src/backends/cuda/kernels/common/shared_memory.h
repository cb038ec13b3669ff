// Dynamic shared memory of kernels that have more of it than 48 KiB.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

// Blocks of the kernel may have so many bytes. Throws ModuleError where the device has fewer.
template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "a kernel's shared memory");
}
// The same, where the whole of a multiprocessor's memory shall be shared memory and no cache.
template <typename Kernel>
void allow_shared_alone(Kernel* kernel, size_t bytes) {
  allow_shared(kernel, bytes);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "a kernel's shared memory");
}

}  // namespace octet::cuda
