#include "comm/processes.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/copy_bytes.h"
#include "base/error.h"
#include "comm/progress.h"

namespace octet {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // bytes that a rank shows at a time
constexpr int64_t kEagerLooks = 200;
constexpr std::chrono::microseconds kPause{50};
constexpr std::chrono::milliseconds kBetweenSigns{100};

// What a rank is in the middle of: all must be in the same.
struct Call {
  char what = 0;
  int64_t bytes = 0;
};

}  // namespace

// At the start of the shared memory; the ranks' pieces follow.
struct ProcessBoard::State {
  int n_ranks = 0;
  std::atomic<int> n_arrived = 0;
  std::atomic<int64_t> turn = 0;
  std::atomic<int> failed_rank = -1;
  std::atomic<bool> has_failure = false;  // its text is written
  char failure[512] = {};
  std::atomic<int64_t> signs_of_life[kMostRanks] = {}, progress[kMostRanks] = {};
  Call calls[kMostRanks] = {};

  void throw_if_failed() const {
    if (has_failure.load()) throw Error(ErrorCode::device, "[ranks] {}", failure);
  }
  // Until all have come.
  void meet() {
    throw_if_failed();
    const int64_t now = turn.load();
    if (n_arrived.fetch_add(1) + 1 == n_ranks) {
      n_arrived.store(0);
      turn.store(now + 1);
      return;
    }
    for (int64_t looked = 0; turn.load() == now; ++looked) {
      throw_if_failed();
      if (looked < kEagerLooks) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(kPause);
      }
    }
  }
};

class ProcessGroup : public Group {
 public:
  ProcessGroup(ProcessBoard& board, int rank) : board_(board), rank_(rank), watch_(board.stuck_) {
    sigset_t all, before;  // signals are for the threads that work
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    living_ = std::jthread([this](const std::stop_token& end) {
      for (; !end.stop_requested(); std::this_thread::sleep_for(kBetweenSigns))
        board_.state_->signs_of_life[rank_].fetch_add(1);
    });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  int rank() const override { return rank_; }
  int size() const override { return board_.state_->n_ranks; }

  void all_gather(const std::byte* own, std::byte* all, int64_t bytes) override {
    in_pieces('g', bytes, [&](int64_t first, int64_t n) {
      copy_bytes(board_.slot(rank_), own + first, n);
      meet();
      for (int r = 0; r < size(); ++r) copy_bytes(all + r * bytes + first, board_.slot(r), n);
    });
  }
  void all_to_all(const std::byte* send, std::byte* received, int64_t bytes) override {
    for (int to = 0; to < size(); ++to) {
      in_pieces('t', bytes, [&](int64_t first, int64_t n) {
        copy_bytes(board_.slot(rank_), send + to * bytes + first, n);
        meet();
        if (to != rank_) return;
        for (int r = 0; r < size(); ++r)
          copy_bytes(received + r * bytes + first, board_.slot(r), n);
      });
    }
  }
  void broadcast(std::byte* data, int64_t bytes, int root) override {
    in_pieces('b', bytes, [&](int64_t first, int64_t n) {
      if (rank_ == root) copy_bytes(board_.slot(rank_), data + first, n);
      meet();
      if (rank_ != root) copy_bytes(data + first, board_.slot(root), n);
    });
  }
  void look(int64_t progress) override {
    ProcessBoard::State& state = *board_.state_;
    const std::lock_guard lock(mutex_);
    state.progress[rank_] = progress;
    const auto behind = watch_.behind({state.progress, state.progress + size()});
    if (behind && board_.fail(*behind, watch_.text())) speaks_ = true;
    state.throw_if_failed();
  }
  bool fail(const std::string& why) override { return board_.fail(rank_, why) || speaks_; }

 private:
  // Each piece is shown, read by those who want it, and only then overwritten.
  template <typename Move>
  void in_pieces(char what, int64_t bytes, const Move& move) {
    check_call({what, bytes});
    for (int64_t first = 0; first < bytes; first += kPiece) {
      move(first, std::min(kPiece, bytes - first));
      meet();
    }
  }
  void meet() { board_.state_->meet(); }
  void check_call(const Call& mine) {
    ProcessBoard::State& state = *board_.state_;
    state.calls[rank_] = mine;
    state.meet();
    for (int r = 0; r < size(); ++r) {
      const Call& other = state.calls[r];
      if (other.what == mine.what && other.bytes == mine.bytes) continue;
      if (fail(fmt::format("it moves {} bytes where rank {} moves {}", mine.bytes, r, other.bytes)))
        speaks_ = true;
    }
    meet();
  }

  ProcessBoard& board_;
  int rank_;
  std::mutex mutex_;  // of what follows
  ProgressWatch watch_;
  std::atomic<bool> speaks_ = false;  // it has failed a rank that may say nothing
  std::jthread living_;
};

ProcessBoard::ProcessBoard(int n_ranks, std::chrono::milliseconds stuck) : stuck_(stuck) {
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  CHECK(n_ranks > 0 && n_ranks <= kMostRanks);
  bytes_ = sizeof(State) + static_cast<size_t>(n_ranks * kPiece);
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "[ranks] expected {} bytes of shared memory, got none", bytes_);
  state_ = new (memory) State;
  state_->n_ranks = n_ranks;
}

ProcessBoard::~ProcessBoard() {
  ::munmap(state_, bytes_);
}

std::unique_ptr<Group> ProcessBoard::group(int rank) {
  return std::make_unique<ProcessGroup>(*this, rank);
}

bool ProcessBoard::fail(int rank, const std::string& why) {
  int none = -1;
  if (!state_->failed_rank.compare_exchange_strong(none, rank)) return false;
  const std::string text = fmt::format("rank {} ended: {}", rank, why);
  text.copy(state_->failure, sizeof(state_->failure) - 1);
  state_->has_failure.store(true);
  return true;
}

int ProcessBoard::failed_rank() const {
  return state_->failed_rank.load();
}

int64_t ProcessBoard::signs_of_life(int rank) const {
  return state_->signs_of_life[rank].load();
}

std::byte* ProcessBoard::slot(int rank) const {
  return reinterpret_cast<std::byte*>(state_ + 1) + rank * kPiece;
}

}  // namespace octet
