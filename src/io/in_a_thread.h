// How the work of a checkpoint's files is given to threads.
#pragma once

#include <cstddef>
#include <future>

namespace octet {

// Where no thread can be made the work is done when its result is asked for.
inline constexpr auto kInAThread = std::launch::async | std::launch::deferred;

// Bytes from which hashing beside a write is worth a thread.
inline constexpr size_t kWorthAThread = 4 << 20;

}  // namespace octet
