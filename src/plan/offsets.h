// Byte offsets for buffers that live at different times.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace octet {

// Gives the buffers named by `which` offsets such that no two that live at the same step overlap,
// largest first, each at the lowest gap that fits. Returns the bytes of the arena. Deterministic:
// ties by index.
int64_t assign_offsets(std::vector<Buffer>& buffers, const std::vector<int>& which);

}  // namespace octet
