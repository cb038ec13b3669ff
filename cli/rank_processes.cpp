#include "cli/rank_processes.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/common.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "comm/processes.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr std::chrono::seconds kGrace{10};  // for ranks to end by themselves
constexpr milliseconds kLook{20}, kMostCounted{200};

// What a rank's process ends with; an error is said once, by the rank that has it first.
int run_rank(Group& group, const std::function<void(Group&)>& body) {
  const auto failed = [&](int code, const std::string& what) {
    if (group.fail(what)) {
      const std::string who = group.rank() == 0 ? "" : fmt::format("[rank {}] ", group.rank());
      write_err(fmt::format("octet: {}{}\n", who, what));
    }
    return code;
  };
  try {
    body(group);
    return 0;
  } catch (const ExitStatus& status) {
    return status.code;
  } catch (const Error& error) {
    return failed(exit_code(error.code()), error.what());
  } catch (const std::exception& error) {
    return failed(exit_code(ErrorCode::internal), error.what());
  }
}

struct RankProcess {
  pid_t id = 0;
  int64_t signs_of_life = 0;
  milliseconds silent{0};     // counted while the supervisor runs
  std::optional<int> status;  // as waitpid tells it
};

// Watches the ranks until all have ended.
class Supervisor {
 public:
  Supervisor(ProcessBoard& board, std::vector<RankProcess>& ranks, std::string_view if_lost,
             milliseconds silence)
      : board_(board), ranks_(ranks), if_lost_(if_lost), silence_(silence) {}

  int run() {
    Clock::time_point looked = Clock::now();
    while (n_running() > 0) {
      const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - looked);
      looked = Clock::now();
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        look_at(static_cast<int>(rank));
        listen_to(static_cast<int>(rank), std::min(passed, kMostCounted));
      }
      pass_signal_on();
      if (failed_at_ && Clock::now() > *failed_at_ + kGrace) send(SIGKILL);
      std::this_thread::sleep_for(kLook);
    }
    const int failed = board_.failed_rank();
    return failed < 0 ? first_code_ : code_of(*ranks_[static_cast<size_t>(failed)].status);
  }

 private:
  int n_running() const {
    int n = 0;
    for (const RankProcess& rank : ranks_) n += rank.status ? 0 : 1;
    return n;
  }
  void look_at(int rank) {
    RankProcess& process = ranks_[static_cast<size_t>(rank)];
    int status = 0;
    if (process.status || ::waitpid(process.id, &status, WNOHANG) != process.id) return;
    process.status = status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (!failed_at_) failed_at_ = Clock::now();
    if (first_code_ == 0) first_code_ = code_of(status);
    if (WIFEXITED(status)) return;
    say_failed(rank, fmt::format("killed by signal {} ({})", WTERMSIG(status),
                                 ::strsignal(WTERMSIG(status))));
  }
  // A process that is stopped neither works nor ends: it is killed.
  void listen_to(int rank, milliseconds passed) {
    RankProcess& process = ranks_[static_cast<size_t>(rank)];
    const int64_t signs = board_.signs_of_life(rank);
    process.silent = signs == process.signs_of_life ? process.silent + passed : milliseconds(0);
    process.signs_of_life = signs;
    if (process.status || process.silent < silence_) return;
    say_failed(rank, fmt::format("no sign of life for {:g} s (stopped)",
                                 static_cast<double>(silence_.count()) / 1000));
    ::kill(process.id, SIGKILL);
  }
  void say_failed(int rank, const std::string& why) {
    if (board_.fail(rank, why))
      write_err(fmt::format("octet: [ranks] rank {} ended: {}{}\n", rank, why, if_lost_));
  }
  static int code_of(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : exit_code(ErrorCode::rank_lost);
  }
  void pass_signal_on() {
    const int signal = stop_wish().load();
    if (signal == 0 || was_passed_) return;
    was_passed_ = true;
    send(signal);
  }
  void send(int signal) const {
    for (const RankProcess& rank : ranks_) {
      if (!rank.status) ::kill(rank.id, signal);
    }
  }

  ProcessBoard& board_;
  std::vector<RankProcess>& ranks_;
  const std::string_view if_lost_;
  const milliseconds silence_;
  std::optional<Clock::time_point> failed_at_;
  int first_code_ = 0;  // of those that look_at saw end otherwise than well
  bool was_passed_ = false;
};

}  // namespace

int run_rank_processes(int n_ranks, const std::function<void(Group& group)>& body,
                       std::string_view if_lost, milliseconds silence) {
  ProcessBoard board(n_ranks, stuck_time(::getenv));
  finish_output();  // nothing is written twice
  std::vector<RankProcess> ranks(static_cast<size_t>(n_ranks));
  for (int rank = 0; rank < n_ranks; ++rank) {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0)
      throw Error(ErrorCode::device, "[ranks] the system makes no process for rank {}", rank);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);  // the terminal's signals come through the supervisor, once
      if (::getppid() != parent) ::_exit(1);
      const int code = run_rank(*board.group(rank), body);
      std::fflush(nullptr);
      ::_exit(code);
    }
    ranks[static_cast<size_t>(rank)].id = child;
  }
  StopDeferral deferral;
  deferral.begin();  // signals are the ranks' to heed
  return Supervisor(board, ranks, if_lost, silence).run();
}

}  // namespace octet
