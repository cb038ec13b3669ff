// Waiting for the other ranks without a multiprocessor.
#pragma once

#include <array>
#include <chrono>

#include "backends/cuda/launch/ranks.h"

namespace octet::cuda {

// What is queued behind it on this stream begins when the streams of all ranks have come here. All
// ranks hold the same meetings in the same order. May be captured. Throws ModuleError.
void meet(const RankLinks& links, Meeting meeting, cudaStream_t stream);

// Waits until these streams have ended their work. After `patience` it lets them pass their
// meetings alone, by a copy on the stream `beside`, and throws ModuleError naming the ranks that
// did not come.
void await_peers(const RankLinks& links, const std::array<cudaStream_t, 2>& streams,
                 cudaStream_t beside, std::chrono::milliseconds patience);

}  // namespace octet::cuda
