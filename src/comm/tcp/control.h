// Who of the ranks lives, and who failed first: a star of connections around rank 0 that a thread
// of its own serves, whatever the rank's work is doing.
//
// Each rank gives a sign of life each second. One that gives none for `silence`, because it is
// stopped or its machine or network is gone, has failed, and so has one whose connection closes
// without a good-bye, because it was killed. A sign of life says how far the rank's device is while
// the rank waits for it: where none gets on, the one that is behind has failed. What rank 0 heard
// first counts and goes to all: later failures are consequences.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/rank_times.h"
#include "comm/tcp/socket.h"

namespace octet {

// Which rank is behind, where devices of ranks that wait for each other do not get on.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ProgressWatch(std::chrono::milliseconds limit) : limit_(limit) {}

  // Asked again and again while a rank waits for its device, with what each rank has last said of
  // its own: the rank that has done least, once nothing has changed for the limit.
  std::optional<int> behind(std::vector<int64_t> progress, Clock::time_point now = Clock::now()) {
    constexpr std::chrono::seconds kOtherWait{5};
    if (now - asked_ > kOtherWait || progress != last_) changed_ = now;
    asked_ = now;
    last_ = std::move(progress);
    if (now - changed_ < limit_) return std::nullopt;
    return static_cast<int>(std::ranges::min_element(last_) - last_.begin());
  }
  std::string text() const {
    const bool is_one = std::ranges::count(last_, std::ranges::min(last_)) < std::ssize(last_);
    return fmt::format("{} for {:g} s",
                       is_one ? "its device has not got on, and others wait for it,"
                              : "no rank's device has got on",
                       static_cast<double>(limit_.count()) / 1000);
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point asked_, changed_;
  std::vector<int64_t> last_;
};

}  // namespace octet

namespace octet::tcp {

struct ControlOptions {
  std::chrono::milliseconds silence = RankTimes().silence, stuck = RankTimes().stuck;
  // This long after a failure the work has still not ended: `on_stuck` may end the process, from
  // the thread that watches.
  std::chrono::milliseconds grace{10'000};
  std::function<void(const Error& failure)> on_stuck = {};
};

class Control {
 public:
  // links: rank 0's by rank, the first one empty; another rank's one to rank 0.
  Control(int rank, std::vector<Socket> links, const ControlOptions& options);
  ~Control();  // says good-bye
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Throws Error, "[ranks] rank N ended: ...", once a rank has failed: Error{rank_lost} where it
  // did not say so itself, else Error{device}.
  void throw_if_failed() const;
  void look(int64_t progress);  // Group's
  // A rank has failed, this or another one: all others learn it. Whether this is the failure that
  // counts. Waits for rank 0's answer, at most seconds. code: device, or rank_lost.
  bool fail(int rank, const std::string& why, ErrorCode code = ErrorCode::device);
  // For a connection that closed: waits until it is known why, at most so long.
  void await_failure(std::chrono::milliseconds time) const;
  const ControlOptions& options() const { return options_; }

 private:
  struct Link {
    Socket socket;
    int rank = 0;  // at the other end
    std::string in, out;
    std::chrono::milliseconds silent{0};
    int64_t progress = 0;
    bool said_good_bye = false, is_closed = false;
  };
  struct Failure {
    int rank = -1;
    std::string why;
    ErrorCode code = ErrorCode::rank_lost;
  };

  void watch();
  void tick(std::chrono::milliseconds passed);
  void receive(Link& link);
  void read_messages(Link& link);
  void close_locked(Link& link);
  void find_stuck_locked();
  void decide_locked(int rank, const std::string& why, ErrorCode code = ErrorCode::rank_lost);
  void send_locked(Link& link, char type, int rank, const std::string& text);
  void send_failure_locked(Link& link, const Failure& failure);
  void flush_locked(Link& link);
  Error failure_locked() const;

  const int rank_;
  const ControlOptions options_;
  std::vector<Link> links_;
  mutable std::mutex mutex_;  // of all that follows, and of links_ but for their sockets
  mutable std::condition_variable changed_;
  std::optional<Failure> failure_;
  int64_t progress_ = 0;
  bool has_looked_ = false;           // since the last sign of life
  Clock::time_point waited_at_ = {};  // when a rank waited for its device
  ProgressWatch watch_;
  std::atomic<bool> has_failed_ = false, is_ending_ = false;
  std::thread thread_;
};

}  // namespace octet::tcp
