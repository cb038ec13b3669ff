#include "comm/tcp/group.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"

namespace octet::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{50};      // how often a waiting rank asks whether another has failed
constexpr milliseconds kWords{2'000};  // for the reason of a closed connection to arrive
constexpr int64_t kAtOnce = int64_t{4} << 20;

// Goes before what each collective sends, so that ranks that are in different ones find out.
struct Call {
  char what = 0;
  char unused[7] = {};
  int64_t bytes = 0;
  bool operator==(const Call& other) const { return what == other.what && bytes == other.bytes; }
  std::string text() const {
    const char* name = what == 'g' ? "all_gather" : what == 't' ? "all_to_all" : "broadcast";
    return fmt::format("{} of {} bytes", name, bytes);
  }
};

// Data that go one way between two ranks, in a collective.
struct Flow {
  Call call;
  std::byte* data = nullptr;
  int64_t bytes = 0, done = 0;  // done: of the call and the data behind it
  bool is_wanted = false;

  int64_t whole() const { return static_cast<int64_t>(sizeof(Call)) + bytes; }
  bool is_done() const { return !is_wanted || done == whole(); }
  bool has_call() const { return done >= static_cast<int64_t>(sizeof(Call)); }
  // Remaining parts, at most as much as is moved at once.
  int parts(std::array<iovec, 2>& parts) {
    const auto head = static_cast<int64_t>(sizeof(Call));
    int n = 0;
    if (done < head)
      parts[n++] = {reinterpret_cast<char*>(&call) + done, static_cast<size_t>(head - done)};
    const int64_t first = std::max(int64_t{0}, done - head);
    if (first < bytes)
      parts[n++] = {data + first, static_cast<size_t>(std::min(kAtOnce, bytes - first))};
    return n;
  }
};

class TcpGroup : public Group {
 public:
  TcpGroup(int rank, std::unique_ptr<Control> control, std::vector<Socket> peers)
      : rank_(rank),
        control_(std::move(control)),
        peers_(std::move(peers)),
        out_(peers_.size()),
        in_(peers_.size()) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }

  void all_gather(const std::byte* own, std::byte* all, int64_t bytes) override {
    const Call call{.what = 'g', .bytes = bytes};
    copy_bytes(all + rank_ * bytes, own, bytes);
    for (int r = 0; r < size(); ++r) {
      send_to(r, call, own, bytes);
      receive_from(r, call, all + r * bytes, bytes);
    }
    move(call);
  }
  void all_to_all(const std::byte* send, std::byte* received, int64_t bytes) override {
    const Call call{.what = 't', .bytes = bytes};
    copy_bytes(received + rank_ * bytes, send + rank_ * bytes, bytes);
    for (int r = 0; r < size(); ++r) {
      send_to(r, call, send + r * bytes, bytes);
      receive_from(r, call, received + r * bytes, bytes);
    }
    move(call);
  }
  void broadcast(std::byte* data, int64_t bytes, int root) override {
    const Call call{.what = 'b', .bytes = bytes};
    for (int r = 0; r < size(); ++r) {
      if (rank_ == root) send_to(r, call, data, bytes);
    }
    if (rank_ != root) receive_from(root, call, data, bytes);
    move(call);
  }
  void look(int64_t progress) override { control_->look(progress); }
  bool fail(const std::string& why) override { return control_->fail(rank_, why); }

 private:
  void send_to(int rank, const Call& call, const std::byte* data, int64_t bytes) {
    if (rank == rank_) return;
    // Only read, as sendmsg does.
    out_[index(rank)] = {call, const_cast<std::byte*>(data), bytes, 0, true};
  }
  void receive_from(int rank, const Call& call, std::byte* data, int64_t bytes) {
    if (rank != rank_) in_[index(rank)] = {call, data, bytes, 0, true};
  }

  // Until all flows are done.
  void move(const Call& call) {
    control_->throw_if_failed();
    moved_at_ = Clock::now();
    while (true) {
      bool is_done = true;
      for (size_t r = 0; r < peers_.size(); ++r) {
        if (!out_[r].is_done()) step(r, out_[r], ::sendmsg, MSG_NOSIGNAL);
        if (!in_[r].is_done()) take(r, call);
        is_done = is_done && out_[r].is_done() && in_[r].is_done();
      }
      if (is_done) break;
      wait();
      control_->throw_if_failed();
    }
    std::fill(out_.begin(), out_.end(), Flow{});
    std::fill(in_.begin(), in_.end(), Flow{});
  }

  void take(size_t r, const Call& call) {
    Flow& flow = in_[r];
    step(r, flow, ::recvmsg, 0);
    if (!flow.has_call() || flow.call == call) return;
    // Behind another call lies other data.
    throw_failed(rank_, fmt::format("it called {}, rank {} {}", call.text(), r, flow.call.text()));
  }

  // Moves what goes without waiting.
  template <typename Operation>
  void step(size_t r, Flow& flow, const Operation& operation, int flags) {
    std::array<iovec, 2> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    // The data waits for the call, whose words may be others'.
    const bool is_receiving = &flow == &in_[r];
    const int n_parts = flow.parts(parts);
    message.msg_iovlen = is_receiving && !flow.has_call() ? 1 : static_cast<size_t>(n_parts);
    const ssize_t n = operation(peers_[r].get(), &message, flags | MSG_DONTWAIT);
    if (n > 0) {
      flow.done += n;
      moved_at_ = Clock::now();
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      lost(r, n == 0 ? "" : std::strerror(errno));
    }
  }

  // A rank that failed or was killed closes its connections; its own words count, if there are any.
  [[noreturn]] void lost(size_t r, const std::string& problem) {
    control_->await_failure(kWords);
    control_->throw_if_failed();
    const std::string why = problem.empty() ? "it closed" : problem;
    throw_failed(static_cast<int>(r),
                 fmt::format("its connection to rank {} is lost ({})", rank_, why),
                 ErrorCode::rank_lost);
  }
  [[noreturn]] void throw_failed(int rank, const std::string& why,
                                 ErrorCode code = ErrorCode::device) {
    control_->fail(rank, why, code);
    control_->throw_if_failed();
    throw Error(ErrorCode::internal, why);
  }

  void wait() {
    std::vector<pollfd> asked;
    for (size_t r = 0; r < peers_.size(); ++r) {
      const int events = (out_[r].is_done() ? 0 : POLLOUT) | (in_[r].is_done() ? 0 : POLLIN);
      if (events != 0) asked.push_back({peers_[r].get(), static_cast<short>(events), 0});
    }
    const bool moves = ::poll(asked.data(), asked.size(), static_cast<int>(kLook.count())) > 0;
    const milliseconds silence = control_->options().silence;
    if (moves || Clock::now() - moved_at_ < silence) return;
    for (size_t r = 0; r < peers_.size(); ++r) {
      const bool is_asked = !out_[r].is_done() || !in_[r].is_done();
      if (is_asked && is_unanswered(peers_[r], silence)) lost(r, "no answer");
    }
  }

  static size_t index(int rank) { return static_cast<size_t>(rank); }

  const int rank_;
  std::unique_ptr<Control> control_;
  std::vector<Socket> peers_;  // by rank, without the own one
  std::vector<Flow> out_, in_;
  Clock::time_point moved_at_;
};

}  // namespace

std::unique_ptr<Group> join_ranks(const Place& place, const ControlOptions& options,
                                  Socket listener) {
  if (place.rank == 0 && !listener) listener = listen_at(place.addresses[0], place.port);
  std::vector<Socket> star = join_star(place, listener);
  std::unique_ptr<Control> control;
  std::vector<Socket> mesh = join_mesh(place, listener, std::move(star), options, control);
  return std::make_unique<TcpGroup>(place.rank, std::move(control), std::move(mesh));
}

}  // namespace octet::tcp
