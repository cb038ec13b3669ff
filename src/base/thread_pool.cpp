#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"

namespace octet {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  uint64_t generation = 0;
  int n_running = 0;
  bool stop = false;
  int64_t n_tiles = 0;
  std::atomic<int64_t> next_tile{0};
  const std::function<void(int64_t, int)>* fn = nullptr;
  std::exception_ptr error;

  void drain(int thread) {
    try {
      for (int64_t tile = next_tile++; tile < n_tiles; tile = next_tile++) (*fn)(tile, thread);
    } catch (...) {
      next_tile = n_tiles;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }

  void work(int thread) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        start.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      drain(thread);
      const std::lock_guard lock(mutex);
      if (--n_running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>()) {
  const int n = n_threads > 0 ? n_threads : usable_cores();
  for (int i = 1; i < n; ++i) state_->workers.emplace_back([this, i] { state_->work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->start.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

int ThreadPool::n_threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run(int64_t n_tiles, const std::function<void(int64_t, int)>& fn) {
  if (n_tiles <= 0) return;
  if (n_tiles == 1 || state_->workers.empty()) {
    for (int64_t tile = 0; tile < n_tiles; ++tile) fn(tile, 0);
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    CHECK(state_->n_running == 0);
    state_->fn = &fn;
    state_->n_tiles = n_tiles;
    state_->next_tile = 0;
    state_->error = nullptr;
    state_->n_running = static_cast<int>(state_->workers.size());
    ++state_->generation;
  }
  state_->start.notify_all();
  state_->drain(0);
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [&] { return state_->n_running == 0; });
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace octet
