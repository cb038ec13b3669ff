// A fixed set of threads that own output tiles. Tile bounds never depend on the number of threads,
// each tile is run by one thread, and no reduction crosses tiles: so results are the same for any
// number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace octet {

class ThreadPool {
 public:
  // n_threads counts the calling thread; 0 means one per core that this process may use.
  explicit ThreadPool(int n_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  // Runs fn(tile, thread) for every tile in [0, n_tiles); thread is in [0, n_threads()). Returns
  // when all are done and rethrows the first exception of a tile. Not re-entrant: a tile must not
  // call run. In a forked child the first run starts threads anew.
  void run(int64_t n_tiles, const std::function<void(int64_t tile, int thread)>& fn);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
