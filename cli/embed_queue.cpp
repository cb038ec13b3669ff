#include "cli/embed_queue.h"

#include <fmt/format.h>

namespace octet {
Embeddings EmbedQueue::embed(const std::vector<std::string>& texts) {
  std::unique_lock lock(mutex_);
  if (is_closed_) throw closing_error();
  if (n_open_ > limits_.queue) {
    throw ServeError{.status = 503,
                     .message = fmt::format("{} requests run or wait already; try again", n_open_),
                     .code = "overloaded"};
  }
  ++n_open_;
  const bool has_turn = changed_.wait_for(lock, std::chrono::duration<double>(limits_.seconds),
                                          [&] { return !runs_; });
  struct Leave {  // whatever happens
    EmbedQueue& queue;
    std::unique_lock<std::mutex>& lock;
    bool ran;
    ~Leave() {
      if (!lock.owns_lock()) lock.lock();
      --queue.n_open_;
      if (ran) queue.runs_ = false;
      queue.changed_.notify_all();
    }
  } const leave{*this, lock, has_turn};
  if (!has_turn) throw late_error(limits_.seconds);
  runs_ = true;
  lock.unlock();
  return embedder_.embed(texts);
}

void EmbedQueue::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  changed_.wait(lock, [&] { return n_open_ == 0; });
}

}  // namespace octet
