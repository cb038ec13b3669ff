#include "comm/tcp/control.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace octet::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxBetweenSigns{1000};
constexpr milliseconds kVerdict{3000};  // for rank 0 to say whose failure counts
constexpr size_t kMaxText = 4096;

// A message is this, and `bytes` of text.
struct Head {
  // 'L' a sign of life, its text the progress of a rank that waits; 'F' a failure of `rank`, 'G'
  // one that it did not say itself; 'B' good-bye
  char type = 0;
  char unused[3] = {};
  int32_t rank = 0;
  uint32_t bytes = 0;
};

milliseconds since(Clock::time_point then) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - then);
}

// Signals are for the threads that work.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Control::Control(int rank, std::vector<Socket> links, const ControlOptions& options)
    : rank_(rank), options_(options), watch_(options.stuck) {
  for (size_t other = 0; other < links.size(); ++other) {
    if (!links[other]) continue;
    Link link;
    link.socket = std::move(links[other]);
    link.rank = rank == 0 ? static_cast<int>(other) : 0;
    links_.push_back(std::move(link));
  }
  const WithoutSignals none;
  thread_ = std::thread([this] { watch(); });
}

Control::~Control() {
  {
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) send_locked(link, 'B', rank_, "");
  }
  is_ending_ = true;
  thread_.join();
}

Error Control::failure_locked() const {
  return Error(failure_->code, "[ranks] rank {} ended: {}", failure_->rank, failure_->why);
}

void Control::throw_if_failed() const {
  if (!has_failed_.load()) return;
  const std::lock_guard lock(mutex_);
  throw failure_locked();
}

void Control::look(int64_t progress) {
  {
    const std::lock_guard lock(mutex_);
    progress_ = progress;
    has_looked_ = true;
  }
  throw_if_failed();
}

bool Control::fail(int rank, const std::string& why, ErrorCode code) {
  std::unique_lock lock(mutex_);
  if (failure_) return false;
  const std::string text = why.substr(0, kMaxText);
  if (rank_ != 0 && !links_.empty() && !links_[0].is_closed) {
    send_failure_locked(links_[0], {rank, text, code});
    changed_.wait_for(lock, kVerdict, [&] { return failure_.has_value(); });
  }
  if (!failure_) decide_locked(rank, text, code);
  return failure_->rank == rank && failure_->why == text;
}

void Control::await_failure(milliseconds time) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return failure_.has_value(); });
}

void Control::decide_locked(int rank, const std::string& why, ErrorCode code) {
  if (failure_) return;
  failure_ = {rank, why, code};
  has_failed_ = true;
  if (rank_ == 0) {
    for (Link& link : links_) send_failure_locked(link, *failure_);
  }
  changed_.notify_all();
}

void Control::send_locked(Link& link, char type, int rank, const std::string& text) {
  if (link.is_closed) return;
  Head head;
  head.type = type;
  head.rank = rank;
  head.bytes = static_cast<uint32_t>(text.size());
  link.out.append(reinterpret_cast<const char*>(&head), sizeof(head));
  link.out += text;
  flush_locked(link);
}

void Control::send_failure_locked(Link& link, const Failure& failure) {
  const char type = failure.code == ErrorCode::rank_lost ? 'G' : 'F';
  send_locked(link, type, failure.rank, failure.why);
}

void Control::flush_locked(Link& link) {
  while (!link.out.empty()) {
    const ssize_t n =
        ::send(link.socket.get(), link.out.data(), link.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) return;  // later; a connection that is lost is seen by who reads from it
    link.out.erase(0, static_cast<size_t>(n));
  }
}

void Control::close_locked(Link& link) {
  link.is_closed = true;
  changed_.notify_all();
  if (!link.said_good_bye)
    decide_locked(link.rank, "its connection closed without a word (killed, or its host is gone)");
}

void Control::receive(Link& link) {
  char buffer[4096];
  const ssize_t n = ::recv(link.socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const std::lock_guard lock(mutex_);
  if (n <= 0) return close_locked(link);
  link.silent = milliseconds(0);
  link.in.append(buffer, static_cast<size_t>(n));
  read_messages(link);
}

void Control::read_messages(Link& link) {
  Head head;
  while (link.in.size() >= sizeof(head)) {
    std::memcpy(&head, link.in.data(), sizeof(head));
    if (head.bytes > kMaxText) return close_locked(link);
    if (link.in.size() < sizeof(head) + head.bytes) return;
    const std::string text = link.in.substr(sizeof(head), head.bytes);
    link.in.erase(0, sizeof(head) + head.bytes);
    if (head.type == 'F') decide_locked(head.rank, text, ErrorCode::device);
    if (head.type == 'G') decide_locked(head.rank, text, ErrorCode::rank_lost);
    if (head.type == 'L' && !text.empty()) {
      link.progress = std::strtoll(text.c_str(), nullptr, 10);
      waited_at_ = Clock::now();
    }
    if (head.type == 'B') link.said_good_bye = true;
    changed_.notify_all();
  }
}

void Control::tick(milliseconds passed) {
  const std::lock_guard lock(mutex_);
  for (Link& link : links_) {
    if (link.is_closed || link.said_good_bye) continue;
    link.silent += passed;
    if (link.silent < options_.silence) continue;
    decide_locked(link.rank, fmt::format("no sign of life for {:g} s (stopped, or its host or "
                                         "network is gone)",
                                         static_cast<double>(options_.silence.count()) / 1000));
  }
  if (rank_ == 0) find_stuck_locked();
}

void Control::find_stuck_locked() {
  if (since(waited_at_) > 3 * kMaxBetweenSigns) return;
  std::vector<int64_t> progress(links_.size() + 1);
  progress[0] = progress_;
  for (const Link& link : links_) progress[static_cast<size_t>(link.rank)] = link.progress;
  if (const auto behind = watch_.behind(std::move(progress))) decide_locked(*behind, watch_.text());
}

void Control::watch() {
  const milliseconds between = std::min(kMaxBetweenSigns, options_.silence / 5);
  const milliseconds pause = std::clamp(between / 4, milliseconds(5), milliseconds(50));
  Clock::time_point looked = Clock::now(), signed_at = looked - between;
  std::optional<Clock::time_point> failed_at;
  bool is_told = false;
  while (!is_ending_) {
    if (since(signed_at) >= between) {
      signed_at = Clock::now();
      const std::lock_guard lock(mutex_);
      const bool waits = std::exchange(has_looked_, false);
      if (waits) waited_at_ = signed_at;
      for (Link& link : links_) {
        if (link.out.empty()) send_locked(link, 'L', rank_, waits ? std::to_string(progress_) : "");
        flush_locked(link);
      }
    }
    std::vector<pollfd> asked;
    for (const Link& link : links_)
      asked.push_back({link.is_closed ? -1 : link.socket.get(), POLLIN, 0});
    ::poll(asked.data(), asked.size(), static_cast<int>(pause.count()));
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i].revents != 0) receive(links_[i]);
    }
    // The others' silence cannot be told from this process's own where it was stopped itself.
    tick(std::min(since(looked), 2 * pause));
    looked = Clock::now();
    if (has_failed_ && !failed_at) failed_at = looked;
    if (failed_at && !is_told && since(*failed_at) >= options_.grace && options_.on_stuck) {
      is_told = true;
      std::unique_lock lock(mutex_);
      const Error failure = failure_locked();
      lock.unlock();
      options_.on_stuck(failure);
    }
  }
}

}  // namespace octet::tcp
