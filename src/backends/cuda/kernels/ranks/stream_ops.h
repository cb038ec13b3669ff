// Operations of streams themselves on words of memory, and asking whether they have ended.
#pragma once

#include <cuda.h>

#include <span>
#include <vector>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

CUstreamBatchMemOpParams wait_for_one(const uint32_t* flag);
CUstreamBatchMemOpParams write_word(uint32_t* word, uint32_t value);
// One after another. May be captured.
void run_stream_ops(std::vector<CUstreamBatchMemOpParams>& ops, cudaStream_t stream);

bool are_idle(std::span<const cudaStream_t> streams);

}  // namespace octet::cuda
