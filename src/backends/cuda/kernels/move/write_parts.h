// Few bytes of the host to several places of the device by one launch, whose parameters carry them:
// nothing waits, and the host's memory is free again at once.
#pragma once

#include <cuda_runtime.h>

#include <span>

#include "backends/cuda/module_api.h"

namespace octet::cuda {

// True if the module was built for the device that is set; every kernel is for the same ones.
bool has_code_for_device();

// How many of them, from the first on, one launch writes; 0 where the first is too large.
size_t parts_of_one_write(std::span<const OctetCudaPart> parts);
void launch_write_parts(std::span<const OctetCudaPart> parts, cudaStream_t stream);

}  // namespace octet::cuda
