// The kernels behind formats_api.h: arrays by the scalar functions of formats/ and math/, so that
// their bits are those of the CPU's. Calls are checked by their caller; asynchronous on `stream`.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/formats_api.h"

namespace octet::cuda {

void launch_encode_array(const OctetCudaEncoding& call, cudaStream_t stream);
void launch_decode_array(const OctetCudaDecoding& call, cudaStream_t stream);

// Throw ModuleError for a format that has no codec, or no range expansion.
void launch_quantize_tiles(const OctetCudaTiles& call, cudaStream_t stream);
void launch_dequantize_tiles(const OctetCudaTiles& call, cudaStream_t stream);
void launch_expand_tiles(const OctetCudaTiles& call, cudaStream_t stream);
void launch_contract_tiles(const OctetCudaTiles& call, cudaStream_t stream);

}  // namespace octet::cuda
