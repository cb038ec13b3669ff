// Byte offsets for buffers that live at different times.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace octet {

// a + b bytes of one arena; throws Error{device} naming `what` beyond 2^60, so that no sum of
// arenas, nor what follows from one, wraps.
int64_t add_bytes(int64_t a, int64_t b, std::string_view what);

// Gives the buffers named by `which` offsets such that no two that live at the same step overlap,
// largest first, each at the lowest gap that fits. Returns the bytes of the arena. Deterministic:
// ties by index.
int64_t assign_offsets(std::vector<Buffer>& buffers, const std::vector<int>& which);

}  // namespace octet
