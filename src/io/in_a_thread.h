// How the work of a checkpoint's files is given to threads.
#pragma once

#include <cstddef>
#include <future>

namespace octet {

// Work for which no thread can be made is done when its result is asked for.
inline constexpr auto kInAThread = std::launch::async | std::launch::deferred;

// Bytes from which hashing beside a write is worth a thread.
inline constexpr size_t kWorthAThread = 4 << 20;

// Calls hash() beside write(), both of so many bytes: in a thread where that is worth one.
template <typename Hash, typename Write>
void hash_beside(size_t n_bytes, const Hash& hash, const Write& write) {
  if (n_bytes < kWorthAThread) {
    write();
    hash();
    return;
  }
  const auto hashed = std::async(kInAThread, hash);
  write();
  hashed.wait();
}

}  // namespace octet
