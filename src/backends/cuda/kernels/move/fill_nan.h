// NaN in the place of results that a quantizer's flag says are of no use, without the host's
// looking at the flag.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "backends/cuda/module_api.h"

namespace octet::cuda {

// Sets all 16-bit words of the ranges to 0x7FC0 where *flag is not 0. There are at most
// OCTET_CUDA_MAX_RANGES ranges; addresses and bytes are even. Asynchronous on `stream`.
void launch_fill_nan_where(const uint8_t* flag, std::span<const OctetCudaRange> ranges,
                           cudaStream_t stream);

}  // namespace octet::cuda
