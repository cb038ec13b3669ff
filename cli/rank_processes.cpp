#include "cli/rank_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "base/error.h"
#include "cli/error_of.h"
#include "cli/launched_ranks.h"
#include "cli/output.h"
#include "cli/signals.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{12};  // for ranks to end by themselves, which takes them 10
constexpr std::chrono::seconds kTrace{3};   // for the system to tell how a lost rank ended
constexpr int kLookMs = 20;

// Ranks' last words to the process that started them. A word is written and read as a whole.
class Words {
 public:
  Words() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0)
      throw Error(ErrorCode::device, "[ranks] the system makes no pipe: {}", std::strerror(errno));
    from_ = tcp::Socket(ends[0]), to_ = tcp::Socket(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  void say(const LastWord& word) const {
    Packet packet;
    packet.is_own = word.is_own, packet.is_lost = word.is_lost, packet.code = word.code;
    word.text.copy(packet.text.data(), packet.text.size() - 1);
    if (::write(to_.get(), &packet, sizeof(packet)) < 0) return;  // nobody is there to hear it
  }
  std::optional<LastWord> next() const {
    Packet packet;
    if (::read(from_.get(), &packet, sizeof(packet)) != sizeof(packet)) return std::nullopt;
    return LastWord{packet.is_own, packet.is_lost, packet.code, packet.text.data()};
  }
  void wait() const {
    pollfd asked{from_.get(), POLLIN, 0};
    ::poll(&asked, 1, kLookMs);
  }

 private:
  struct Packet {
    bool is_own = false, is_lost = false;
    int code = 0;
    std::array<char, PIPE_BUF - 2 * sizeof(int)> text = {};
  };
  static_assert(sizeof(Packet) <= PIPE_BUF, "one write puts no other's bytes between");

  tcp::Socket from_, to_;
};

struct RankProcess {
  pid_t id = 0;
  int stopped_by = 0;         // the signal; 0: it runs
  std::optional<int> status;  // as waitpid tells it
};

std::string by_signal(const char* what, int signal) {
  return fmt::format("{} by signal {} ({})", what, signal, ::strsignal(signal));
}

// Watches the ranks until all have ended, and says one line where that is not well.
class Supervisor {
 public:
  Supervisor(std::vector<RankProcess>& ranks, const Words& words, std::string_view if_lost)
      : ranks_(ranks), words_(words), if_lost_(if_lost) {}

  int run() {
    while (std::ranges::any_of(ranks_, is_running)) {
      words_.wait();
      hear();
      for (size_t rank = 0; rank < ranks_.size(); ++rank) look_at(rank);
      pass_signal_on();
      judge();
    }
    hear();
    if (!is_interrupted_) say_what_was_heard();
    return code_.value_or(is_interrupted_ ? 128 + passed_ : worst_code_);
  }

 private:
  static bool is_running(const RankProcess& process) { return !process.status; }

  void say(const std::string& text, int code) {
    write_err(fmt::format("octet: {}\n", text));
    code_ = code;
  }
  void say_lost(size_t rank, const std::string& why) {
    say(fmt::format("[ranks] rank {} ended: {}{}", rank, why, if_lost_),
        exit_code(ErrorCode::rank_lost));
  }
  // By ranks that did not fail themselves.
  void say_what_was_heard() {
    for (const std::optional<LastWord>* word : {&lost_, &echo_}) {
      if (!code_ && *word) say((*word)->text, (*word)->code);
    }
  }
  void note_failure() {
    if (!failed_at_) failed_at_ = Clock::now();
  }

  void hear() {
    while (const std::optional<LastWord> word = words_.next()) {
      note_failure();
      if (code_) continue;
      if (word->is_own) {
        say(word->text, word->code);
      } else {
        std::optional<LastWord>& kept = word->is_lost ? lost_ : echo_;
        if (!kept) kept = word, heard_at_ = Clock::now();
      }
    }
  }
  void look_at(size_t rank) {
    RankProcess& process = ranks_[rank];
    int status = 0;
    if (process.status ||
        ::waitpid(process.id, &status, WNOHANG | WUNTRACED | WCONTINUED) != process.id)
      return;
    if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
      process.stopped_by = WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
      return;
    }
    process.status = status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    note_failure();
    if (WIFEXITED(status)) {
      worst_code_ = std::max(worst_code_, WEXITSTATUS(status));
      if (passed_ != 0 && WEXITSTATUS(status) == 128 + passed_) is_interrupted_ = true;
    } else if (!code_) {
      say_lost(rank, by_signal("killed", WTERMSIG(status)));
    }
  }
  // The others name a rank that they have lost; how it went the system knows better, if not at
  // once. One that is stopped ends by nothing but a kill, and after the grace none does.
  void judge() {
    if (!failed_at_) return;
    const bool is_late = Clock::now() > *failed_at_ + kGrace;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const RankProcess& process = ranks_[rank];
      if (!is_running(process) || (process.stopped_by == 0 && !is_late)) continue;
      if (!code_ && process.stopped_by != 0)
        say_lost(rank, by_signal("no sign of life, stopped", process.stopped_by));
      say_what_was_heard();
      if (!code_)
        say_lost(rank,
                 fmt::format("it goes on where another has ended with status {}", worst_code_));
      ::kill(process.id, SIGKILL);
    }
    if (lost_ && !is_interrupted_ && Clock::now() > heard_at_ + kTrace) say_what_was_heard();
  }
  void pass_signal_on() {
    const int signal = stop_wish().load();
    if (signal == 0 || passed_ != 0) return;
    passed_ = signal;
    for (const RankProcess& process : ranks_) {
      if (is_running(process)) ::kill(process.id, signal);
    }
  }

  std::vector<RankProcess>& ranks_;
  const Words& words_;
  const std::string_view if_lost_;
  std::optional<int> code_;  // of the failure that was said
  std::optional<LastWord> lost_, echo_;
  Clock::time_point heard_at_;
  std::optional<Clock::time_point> failed_at_;
  int worst_code_ = 0, passed_ = 0;
  bool is_interrupted_ = false;  // a rank has ended by the signal that was passed on
};

using Body = std::function<void(Group&, const Launch&)>;

// Status of a rank's process, which then ends with it.
int run_rank(const Launch& launch, const Body& body, std::string_view if_lost, tcp::Socket listener,
             const Words& words) {
  const auto say = [&](const LastWord& word) { words.say(word); };
  try {
    return run_launched_rank(launch, [&](Group& group) { body(group, launch); }, if_lost,
                             {.listener = std::move(listener), .hears = say});
  } catch (const std::exception& thrown) {  // it did not find the others: one of them may say why
    const Error error = error_of(thrown);
    say({.code = exit_code(error.code()), .text = error.what()});
    return exit_code(error.code());
  }
}

}  // namespace

int run_rank_processes(int n_ranks, const Body& body, std::string_view if_lost) {
  finish_output();  // nothing is written twice
  const Words words;
  tcp::Socket listener = tcp::listen_at("127.0.0.1", 0);
  Launch launch = own_launch(::getenv, 0, n_ranks, tcp::port_of(listener));
  std::random_device random;
  launch.token = (static_cast<uint64_t>(random()) << 32) | random();
  std::vector<RankProcess> ranks(static_cast<size_t>(n_ranks));
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < n_ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0)
      throw Error(ErrorCode::device, "[ranks] the system makes no process for rank {}", rank);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);  // the terminal's signals come through the supervisor, once
      if (::getppid() != parent) ::_exit(1);
      launch.rank = rank, launch.local_rank = rank;
      if (rank != 0) listener = {};
      const int code = run_rank(launch, body, if_lost, std::move(listener), words);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks[static_cast<size_t>(rank)].id = child;
  }
  listener = {};
  StopDeferral deferral;
  deferral.begin();  // signals are the ranks' to heed
  return Supervisor(ranks, words, if_lost).run();
}

}  // namespace octet
