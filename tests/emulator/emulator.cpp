// Fibers and what they wait for.
#include "emulator.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "faults.h"

namespace emulator {

Place place;

namespace {

constexpr size_t kStackBytes = size_t{128} << 10, kSharedBytes = size_t{256} << 10;
alignas(1024) char g_shared[kSharedBytes];

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "emulator: block %u, thread %u: %s\n", place.block.x, place.thread.x, what);
  std::abort();
}

// Barrier of threads that meet under one mask of lanes, or as a block.
struct Barrier {
  unsigned arrived = 0, round = 0;
  Brought brought[2];
};
struct Warp {
  uint32_t alive = 0;
  Barrier of_all;
  std::map<uint32_t, Barrier> of_some;
  Barrier& barrier(uint32_t mask) { return mask == ~0u ? of_all : of_some[mask]; }
};

// Point where a stack goes on, for the compiler's own jumps, which save no more than that.
using Continuation = void* [5];
[[noreturn, gnu::noinline]] void jump(Continuation& to) {
  __builtin_longjmp(to, 1);
}

struct Fiber {
  ucontext_t start;
  Continuation at;
  std::unique_ptr<char[]> stack{
      new char[kStackBytes]};  // pages that are never touched cost nothing
  bool has_started = false, has_ended = true;
  unsigned thread = 0;
  // Waits until that barrier's round is another, or as many have arrived as it expects of a mask of
  // lanes; 0: of the block.
  const Barrier* waits_at = nullptr;
  unsigned round = 0;
  uint32_t mask = 0;
};

class Block {
 public:
  void run(unsigned n_threads, const std::function<void()>& thread) {
    thread_ = &thread;
    while (fibers_.size() < n_threads) fibers_.push_back(std::make_unique<Fiber>());
    warps_.clear();
    warps_.resize((n_threads + 31) / 32);
    all_ = {};
    n_alive_ = n_threads;
    for (unsigned i = 0; i < n_threads; ++i) {
      fibers_[i]->thread = i;
      fibers_[i]->has_ended = false;
      fibers_[i]->waits_at = nullptr;
      warps_[i / 32].alive |= 1u << i % 32;
    }
    while (n_alive_ > 0) {
      const unsigned before = progress_;
      for (unsigned first = 0; first < n_threads; first += 32)
        run_warp(first, std::min(first + 32, n_threads));
      if (progress_ == before) fail("its threads wait for each other for ever");
    }
  }

  void wait_for_block() { wait(all_, 0); }
  const Brought& exchange(uint32_t mask, uint64_t mine) {
    Barrier& barrier = warps_[place.thread.x / 32].barrier(mask);
    Brought& brought = barrier.brought[barrier.round % 2];
    brought.at[lane()] = mine;
    wait(barrier, mask);
    return brought;
  }

 private:
  // Lanes take turns until none goes on.
  void run_warp(unsigned first, unsigned end) {
    for (unsigned before = progress_ - 1; before != progress_;) {
      before = progress_;
      for (unsigned i = first; i < end; ++i) {
        if (!fibers_[i]->has_ended && can_go(*fibers_[i])) resume(*fibers_[i]);
      }
    }
  }
  // How many a barrier waits for.
  unsigned expected(unsigned thread, uint32_t mask) const {
    if (mask == 0) return n_alive_;
    return static_cast<unsigned>(__builtin_popcount(warps_[thread / 32].alive & mask));
  }
  bool can_go(const Fiber& fiber) const {
    const Barrier* at = fiber.waits_at;
    return at == nullptr || at->round != fiber.round ||
           at->arrived >= expected(fiber.thread, fiber.mask);
  }
  [[gnu::noinline]] void resume(Fiber& fiber) {
    place.thread.x = fiber.thread;
    current_ = &fiber;
    if (__builtin_setjmp(scheduler_) != 0) return;
    go_on(fiber);
  }
  [[noreturn, gnu::noinline]] static void go_on(Fiber& fiber) {
    if (fiber.has_started) jump(fiber.at);
    fiber.has_started = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack = {.ss_sp = fiber.stack.get(), .ss_flags = 0, .ss_size = kStackBytes};
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Block::body, 0);
    setcontext(&fiber.start);
    fail("a thread does not start");
  }
  // A fiber runs a thread of this block, then one of the next.
  static void body();
  [[gnu::noinline]] void yield() {
    if (__builtin_setjmp(current_->at) == 0) jump(scheduler_);
  }
  void wait(Barrier& barrier, uint32_t mask) {
    const unsigned round = barrier.round, thread = place.thread.x;
    ++barrier.arrived;
    ++progress_;
    while (barrier.round == round) {
      if (barrier.arrived >= expected(thread, mask)) {
        if (mask != 0) barrier.brought[round % 2].lanes = warps_[thread / 32].alive & mask;
        barrier.arrived = 0;
        ++barrier.round;
        ++progress_;
        return;
      }
      Fiber& fiber = *current_;
      fiber.waits_at = &barrier, fiber.round = round, fiber.mask = mask;
      yield();
    }
    current_->waits_at = nullptr;
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  Barrier all_;
  unsigned n_alive_ = 0, progress_ = 0;
  const std::function<void()>* thread_ = nullptr;
  Fiber* current_ = nullptr;
  Continuation scheduler_;
};

Block g_block;

void Block::body() {
  for (;;) {
    Block& block = g_block;
    (*block.thread_)();
    block.warps_[place.thread.x / 32].alive &= ~(1u << lane());
    --block.n_alive_;
    ++block.progress_;
    block.current_->has_ended = true;
    block.current_->waits_at = nullptr;
    block.yield();
  }
}

unsigned n_blocks_to_run(unsigned n_blocks) {
  switch (omitted()) {
    case Omitted::all:
      return 0;
    case Omitted::last:
      return n_blocks - 1;
    default:
      return n_blocks;
  }
}

}  // namespace

void wait_for_block() {
  g_block.wait_for_block();
}
void wait_for_lanes(uint32_t mask) {
  g_block.exchange(mask, 0);
}
const Brought& exchange(uint32_t mask, uint64_t mine) {
  return g_block.exchange(mask, mine);
}
uint64_t block_number = 0;
void* shared_memory() {
  return g_shared;
}
void* shared_at(uint32_t address) {
  return g_shared + static_cast<int32_t>(address);
}

void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  if (grid.x * grid.y == 0 || block.x == 0 || block.x > 1024 || grid.y > 65535 ||
      grid.z * block.y * block.z != 1)
    fail("a launch of a shape that is not emulated, or that no GPU takes");
  if (shared_bytes > kSharedBytes) fail("more shared memory than there is");
  place.grid_size = {grid.x, grid.y, 1};
  place.block_size = {block.x, 1, 1};
  const unsigned n_blocks = grid.x * grid.y, n_run = n_blocks_to_run(n_blocks);
  note_omitted(n_blocks - n_run);
  for (unsigned i = 0; i < n_run; ++i) {
    place.block = {i % grid.x, i / grid.x, 0};
    ++block_number;
    std::memset(g_shared, 0xFF, shared_bytes);  // nothing is there yet
    g_block.run(block.x, thread);
  }
}

}  // namespace emulator

size_t __cvta_generic_to_shared(const void* at) {
  return static_cast<uint32_t>(static_cast<const char*>(at) - emulator::g_shared);
}
void expect_aligned(const void* at, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(at) % bytes != 0) emulator::fail("an access that is not aligned");
}
