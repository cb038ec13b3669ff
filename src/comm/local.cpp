#include "comm/local.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/bytes.h"
#include "base/error.h"

namespace octet {
namespace {

constexpr std::string_view kFailed = "[ranks] ";

// State that a rank shows the others while a collective lasts.
struct Shown {
  std::string_view what;
  int64_t bytes = 0;
  std::byte* data = nullptr;
  bool operator==(const Shown& other) const { return what == other.what && bytes == other.bytes; }
};

class Board {
 public:
  explicit Board(int n_ranks) : shown_(static_cast<size_t>(n_ranks)) {}

  int size() const { return static_cast<int>(shown_.size()); }

  // Waits until all have shown theirs; then `copy` reads the others' memory, and waits again.
  template <typename Copy>
  void exchange(int rank, const Shown& mine, const Copy& copy) {
    {
      std::unique_lock lock(mutex_);
      throw_if_failed();
      shown_[static_cast<size_t>(rank)] = mine;
      barrier(lock);
      if (const int other = who_differs(mine); other >= 0) fail_locked(rank, differs(mine, other));
      throw_if_failed();
    }
    copy([&](int other) { return shown_[static_cast<size_t>(other)].data; });
    std::unique_lock lock(mutex_);
    barrier(lock);
    throw_if_failed();
  }

  void look() {
    const std::lock_guard lock(mutex_);
    throw_if_failed();
  }
  bool fail(int rank, const std::string& why) {
    const std::lock_guard lock(mutex_);
    return fail_locked(rank, why);
  }

 private:
  bool fail_locked(int rank, const std::string& why) {
    const bool is_first = !failure_;
    if (is_first) failure_ = fmt::format("rank {} ended: {}", rank, why);
    changed_.notify_all();
    return is_first;
  }
  void throw_if_failed() const {
    if (failure_) throw Error(ErrorCode::device, "{}{}", kFailed, *failure_);
  }
  void barrier(std::unique_lock<std::mutex>& lock) {
    const int64_t turn = turn_;
    if (++n_waiting_ == size()) {
      n_waiting_ = 0;
      ++turn_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return turn_ != turn || failure_; });
    if (turn_ == turn) throw_if_failed();
  }
  int who_differs(const Shown& mine) const {
    for (size_t i = 0; i < shown_.size(); ++i) {
      if (!(shown_[i] == mine)) return static_cast<int>(i);
    }
    return -1;
  }
  std::string differs(const Shown& mine, int other) const {
    const Shown& theirs = shown_[static_cast<size_t>(other)];
    return fmt::format("it called {} of {} bytes, rank {} {} of {}", mine.what, mine.bytes, other,
                       theirs.what, theirs.bytes);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  std::optional<std::string> failure_;
  int n_waiting_ = 0;
  int64_t turn_ = 0;
};

class LocalGroup : public Group {
 public:
  LocalGroup(std::shared_ptr<Board> board, int rank) : board_(std::move(board)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return board_->size(); }

  void all_gather(const std::byte* own, std::byte* all, int64_t bytes) override {
    board_->exchange(rank_, {"all_gather", bytes, const_cast<std::byte*>(own)}, [&](auto of) {
      for (int r = 0; r < size(); ++r) copy_bytes(all + r * bytes, of(r), bytes);
    });
  }
  void all_to_all(const std::byte* send, std::byte* received, int64_t bytes) override {
    board_->exchange(rank_, {"all_to_all", bytes, const_cast<std::byte*>(send)}, [&](auto of) {
      for (int r = 0; r < size(); ++r)
        copy_bytes(received + r * bytes, of(r) + rank_ * bytes, bytes);
    });
  }
  void broadcast(std::byte* data, int64_t bytes, int root) override {
    board_->exchange(rank_, {"broadcast", bytes, data}, [&](auto of) {
      if (rank_ != root) copy_bytes(data, of(root), bytes);
    });
  }
  void look(int64_t) override { board_->look(); }
  bool fail(const std::string& why) override { return board_->fail(rank_, why); }

 private:
  std::shared_ptr<Board> board_;
  int rank_;
};

// True if it only says that another rank has failed.
bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& thrown) {
    return std::string_view(thrown.what()).starts_with(kFailed);
  } catch (...) {
    return false;
  }
}

}  // namespace

std::vector<std::unique_ptr<Group>> local_groups(int n_ranks) {
  CHECK(n_ranks > 0);
  const auto board = std::make_shared<Board>(n_ranks);
  std::vector<std::unique_ptr<Group>> groups;
  for (int rank = 0; rank < n_ranks; ++rank)
    groups.push_back(std::make_unique<LocalGroup>(board, rank));
  return groups;
}

void run_local_ranks(std::vector<std::unique_ptr<Group>>& groups,
                     const std::function<void(Group& group)>& body) {
  std::mutex mutex;
  std::vector<std::exception_ptr> errors(groups.size());
  std::optional<size_t> first;
  const auto run = [&](size_t rank, const std::function<void(Group & group)>& work) {
    Group& group = *groups[rank];
    const auto note = [&](const std::string& why) {
      const std::lock_guard lock(mutex);
      errors[rank] = std::current_exception();
      if (!first) first = rank;
      group.fail(why);
    };
    try {
      work(group);
    } catch (const std::exception& error) {
      note(error.what());
    } catch (...) {
      note("an exception of no known kind");
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(groups.size());
  // Rank 0 fails where the system makes no more threads, and so the ranks end that have begun.
  run(0, [&](Group& group) {
    for (size_t rank = 1; rank < groups.size(); ++rank)
      threads.emplace_back([&run, &body, rank] { run(rank, body); });
    body(group);
  });
  for (std::thread& thread : threads) thread.join();
  if (!first) return;
  if (errors[0] && !is_consequence(errors[0])) std::rethrow_exception(errors[0]);
  try {
    std::rethrow_exception(errors[*first]);
  } catch (const Error& error) {
    throw Error(error.code(), "[rank {}] {}", *first, error.what());
  }
}

}  // namespace octet
