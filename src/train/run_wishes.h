// What may end a run between two steps, besides its last one.
#pragma once

#include <cstdint>

namespace octet {

enum class RunEnding : int32_t {
  none,
  no_room,       // for metrics and the next checkpoint (io/save_room.h)
  folder_gone,   // removed, moved or replaced while the run writes there
  folder_taken,  // the same, and another process holds the new one
};

// The same on all ranks.
struct RunWishes {
  int32_t signal = 0;  // its number
  RunEnding ending = RunEnding::none;
};

}  // namespace octet
