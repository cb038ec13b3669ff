// Requests for vectors of `octet serve`, one at a time.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "cli/serve_engine.h"
#include "infer/embed.h"

namespace octet {

class EmbedQueue {
 public:
  EmbedQueue(Embedder& embedder, const ServeLimits& limits)
      : embedder_(embedder), limits_(limits) {}

  // Waits for its turn. Throws ServeError where too many wait or it takes too long, and after
  // close(); as Embedder does.
  Embeddings embed(const std::vector<std::string>& texts);
  // No more texts; returns when the last call has ended.
  void close();

 private:
  Embedder& embedder_;
  ServeLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t n_open_ = 0;  // calls
  bool runs_ = false, is_closed_ = false;
};

}  // namespace octet
