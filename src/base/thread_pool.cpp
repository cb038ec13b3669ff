#include "base/thread_pool.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/call_lock.h"
#include "base/cores.h"
#include "base/error.h"

namespace octet {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

namespace {

// Kernels follow one another within microseconds, waking a thread takes tens: whoever waits looks
// for this long before it sleeps. Where that was in vain, as on a machine that others keep busy, it
// sleeps at once the next times, up to kMaxRests.
constexpr auto kPatience = std::chrono::microseconds(50);
constexpr int kMaxRests = 16;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// While threads are made, holds half of the address space that this process may take (ulimit -v):
// their stacks, of 8 MiB each, must leave room for what they are to do.
class AddressReserve {
 public:
  AddressReserve() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    for (n_bytes_ = limit.rlim_cur / 2; n_bytes_ >= kMin; n_bytes_ /= 2) {
      start_ =
          ::mmap(nullptr, n_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (start_ != MAP_FAILED) return;
    }
  }
  ~AddressReserve() {
    if (start_ != MAP_FAILED) ::munmap(start_, n_bytes_);
  }
  AddressReserve(const AddressReserve&) = delete;
  AddressReserve& operator=(const AddressReserve&) = delete;

 private:
  static constexpr size_t kMin = 1 << 20;
  size_t n_bytes_ = 0;
  void* start_ = MAP_FAILED;
};

class Watcher {
 public:
  explicit Watcher(bool watches) : watches_(watches) {}

  // True if the condition came true while we looked.
  template <typename Condition>
  bool sees(Condition&& is_true) {
    if (!watches_) return false;
    if (resting_ > 0) {
      --resting_;
      return false;
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    do {
      for (int i = 0; i < 32; ++i) {
        if (is_true()) {
          rests_ = 1;
          return true;
        }
        pause_core();
      }
    } while (std::chrono::steady_clock::now() < end);
    resting_ = rests_;
    rests_ = std::min(2 * rests_, kMaxRests);
    return false;
  }

 private:
  bool watches_;
  int resting_ = 0, rests_ = 1;
};

// In a forked child: the workers are the parent's, so that what is left of them here can neither be
// joined nor destroyed.
void leave(const void*) {}

}  // namespace

// run() writes the job, then raises `generation`; the last worker to finish brings n_running to 0,
// and until then run() does not return. Both go up or down under the mutex or are followed by it,
// so that a sleeper cannot miss them.
struct ThreadPool::State {
  const pid_t process = ::getpid();  // which has the workers
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable start, done;
  std::atomic<uint64_t> generation{0};
  std::atomic<int> n_running{0};
  std::atomic<bool> stop{false};
  bool watches = false;    // every thread has a core of its own
  Watcher watcher{false};  // of the thread that calls run()
  int64_t n_tiles = 0;
  std::atomic<int64_t> next_tile{0};
  const std::function<void(int64_t, int)>* fn = nullptr;
  std::exception_ptr error;

  explicit State(int n_threads) {
    const int n_cores = usable_cores(), n = n_threads > 0 ? n_threads : n_cores;
    watches = n <= n_cores;
    watcher = Watcher(watches);
    workers.reserve(static_cast<size_t>(n) - 1);  // what throws comes before any thread
    const AddressReserve reserve;
    // Fewer threads where the system makes no more (a limit of memory or of processes).
    for (int i = 1; i < n && add_worker(i);) ++i;
  }

  // True if the system made another thread.
  bool add_worker(int thread) {
    try {
      workers.emplace_back([this, thread] { work(thread); });
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }

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
    Watcher watcher(watches);
    for (uint64_t seen = 0;; ++seen) {
      const auto called = [&] { return generation.load() != seen || stop.load(); };
      if (!watcher.sees(called)) {
        std::unique_lock lock(mutex);
        start.wait(lock, called);
      }
      if (stop.load()) return;
      drain(thread);
      if (n_running.fetch_sub(1) > 1) continue;
      const std::lock_guard lock(mutex);
      done.notify_one();
    }
  }

  void wait_for_workers() {
    const auto finished = [&] { return n_running.load() == 0; };
    if (watcher.sees(finished)) return;
    std::unique_lock lock(mutex);
    done.wait(lock, finished);
  }
};

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>(n_threads)) {}

ThreadPool::~ThreadPool() {
  if (is_forked_from(state_->process)) {
    leave(state_.release());
    return;
  }
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
  if (is_forked_from(state_->process)) {
    auto anew = std::make_unique<State>(n_threads());
    leave(std::exchange(state_, std::move(anew)).release());
    if (state_->workers.empty()) return run(n_tiles, fn);
  }
  CHECK(state_->n_running == 0);
  state_->fn = &fn;
  state_->n_tiles = n_tiles;
  state_->next_tile = 0;
  state_->error = nullptr;
  state_->n_running = static_cast<int>(state_->workers.size());
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->generation;
  }
  state_->start.notify_all();
  state_->drain(0);
  state_->wait_for_workers();
  if (state_->error) std::rethrow_exception(state_->error);
}

}  // namespace octet
