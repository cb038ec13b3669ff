// Waiting for the other ranks without a multiprocessor.
#pragma once

#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// What is queued behind it on this stream begins when the streams of all ranks have come here. All
// ranks hold the same meetings in the same order. May be captured. Throws ModuleError.
void meet(const RankLinks& links, Meeting meeting, cudaStream_t stream);

}  // namespace octet::cuda
