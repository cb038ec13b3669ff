// Ranks as processes, and who watches them: statuses, lines, kills and signals.
#include "cli/rank_processes.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/common.h"
#include "cli/signals.h"
#include "unit/base/scratch_folder.h"

namespace octet::ranks_rank_processes_test {
namespace {

using test::ScratchFolder;

struct Ended {
  int code = -1;
  std::string err;
};

class RankProcesses : public testing::Test {
 protected:
  // A supervisor of three ranks, in a process of its own.
  pid_t start(const std::function<void(Group&)>& body) {
    const std::string err = folder_ / "err.txt";
    const pid_t id = ::fork();
    if (id != 0) return id;
    const int file = ::open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    ::dup2(file, STDERR_FILENO);
    ::setenv("OCTET_SILENCE_SECONDS", "1", 1);
    ::setenv("OCTET_STUCK_SECONDS", "1", 1);
    install_signals();
    ::_exit(run_rank_processes(
        3, [&](Group& group, const Launch&) { body(group); }, "; go on"));
  }
  Ended wait_for(pid_t id) {
    int status = 0;
    ::waitpid(id, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            posix_files().read_text(folder_ / "err.txt")};
  }
  static void barrier(Group& group) { gather_value(&group, group.rank()); }
  // Three ranks that go on for ever, but for the one that does this to itself.
  Ended end_of(int lost, const std::function<void()>& does) {
    return wait_for(start([&](Group& group) {
      barrier(group);
      if (group.rank() == lost) does();
      while (true) barrier(group);
    }));
  }

  static void await(const std::string& file) {
    for (int i = 0; i < 4000 && !posix_files().exists(file); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  const ScratchFolder folder_;
};

TEST_F(RankProcesses, that_all_end_well_give_0_and_no_word) {
  const Ended ended = wait_for(start(barrier));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST_F(RankProcesses, end_with_the_status_that_they_agree_on_and_no_word) {
  const Ended ended = wait_for(start([](Group& group) {
    barrier(group);
    if (group.rank() == 1) throw ExitStatus{7};
  }));
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(ended.err, "");
}

TEST_F(RankProcesses, say_an_error_once_by_the_rank_that_has_it) {
  for (const int rank : {0, 1}) {
    const Ended ended = end_of(rank, [] { throw Error(ErrorCode::bad_data, "[data] broken"); });
    EXPECT_EQ(ended.code, 3);
    EXPECT_EQ(ended.err, fmt::format("octet: {}[data] broken\n", rank == 0 ? "" : "[rank 1] "));
  }
}

TEST_F(RankProcesses, say_an_error_of_all_once) {
  const Ended ended =
      wait_for(start([](Group&) { throw Error(ErrorCode::bad_data, "[data] broken"); }));
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(ended.err, testing::MatchesRegex("octet: (.rank [12]. )?.data. broken\n"));
}

// The statuses of one process (cli/error_of.h).
TEST_F(RankProcesses, that_get_no_memory_or_threads_end_as_one_process_does) {
  const Ended memory = end_of(1, [] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, 5);
  EXPECT_THAT(memory.err, testing::StartsWith("octet: [rank 1] out of memory: "));
  const Ended threads = end_of(2, [] {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(threads.code, 5);
  EXPECT_THAT(threads.err,
              testing::StartsWith("octet: [rank 2] out of threads (ulimit -u, ulimit -v): "));
}

TEST_F(RankProcesses, are_named_where_they_are_killed) {
  for (const int rank : {0, 2}) {
    const Ended ended = end_of(rank, [] { ::kill(::getpid(), SIGKILL); });
    EXPECT_EQ(ended.code, 75);
    EXPECT_EQ(ended.err, fmt::format("octet: [ranks] rank {} ended: killed by signal 9 (Killed); "
                                     "go on\n",
                                     rank));
  }
}

TEST_F(RankProcesses, are_named_where_they_are_stopped) {
  for (const int rank : {0, 1}) {
    const auto begin = std::chrono::steady_clock::now();
    const Ended ended = end_of(rank, [] { ::kill(::getpid(), SIGSTOP); });
    EXPECT_EQ(ended.code, 75);
    EXPECT_EQ(ended.err, fmt::format("octet: [ranks] rank {} ended: no sign of life, stopped by "
                                     "signal 19 (Stopped (signal)); go on\n",
                                     rank));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  }
}

TEST_F(RankProcesses, are_named_where_they_leave_without_a_word) {
  const Ended ended = end_of(1, [] { ::_exit(9); });
  EXPECT_EQ(ended.code, 75);
  EXPECT_THAT(ended.err, testing::MatchesRegex("octet: .ranks. rank 1 ended: its connection closed "
                                               "without a word .*; go on\n"));
}

// Ranks that launchers start end so as well.
TEST_F(RankProcesses, whose_device_does_not_get_on_are_lost) {
  const Ended ended = wait_for(start([](Group& group) {
    barrier(group);
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
      group.look(group.rank() == 2 ? 4 : 5);
  }));
  EXPECT_EQ(ended.code, 75);
  EXPECT_EQ(ended.err,
            "octet: [ranks] rank 2 ended: its device has not got on, and others wait for it, for 1 "
            "s; go on\n");
}

// Its connections and its thread that watches are there, its work never ends.
TEST_F(RankProcesses, that_do_not_end_behind_a_failure_are_ended) {
  const Ended ended = wait_for(start([](Group& group) {
    barrier(group);
    if (group.rank() == 2) throw Error(ErrorCode::bad_data, "[data] broken");
    while (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    while (true) barrier(group);
  }));
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, "octet: [rank 2] [data] broken\n");
}

TEST_F(RankProcesses, do_not_outlive_the_program) {
  const std::string ready = folder_ / "ready", ids = folder_ / "ids";
  const pid_t id = start([&](Group& group) {
    const std::vector<pid_t> all = gather_value(&group, ::getpid());
    if (group.rank() == 0) folder_.put("ids", fmt::format("{}", fmt::join(all, " ")));
    barrier(group);
    if (group.rank() == 0) folder_.put("ready", "");
    while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
  });
  await(ready);
  ::kill(id, SIGKILL);
  wait_for(id);
  std::istringstream text(posix_files().read_text(ids));
  int n_ranks = 0;
  for (pid_t rank = 0; text >> rank; ++n_ranks) {
    // They are nobody's children here: whoever takes them may leave them dead and unasked.
    const auto is_there = [&] {
      std::ifstream stat(fmt::format("/proc/{}/stat", rank));
      std::string number, name, state;
      return (stat >> number >> name >> state) && state != "Z" && state != "X";
    };
    for (int i = 0; i < 2000 && is_there(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(is_there()) << rank;
  }
  EXPECT_EQ(n_ranks, 3);
}

// Each program's ranks meet among themselves.
TEST_F(RankProcesses, of_several_programs_at_once_do_not_mix) {
  std::vector<pid_t> programs;
  for (int program = 0; program < 8; ++program) {
    programs.push_back(start([&](Group& group) {
      for (int i = 0; i < 20; ++i) {
        for (const int other : gather_value(&group, program)) CHECK(other == program);
      }
    }));
  }
  for (const pid_t id : programs) EXPECT_EQ(wait_for(id).code, 0);
}

TEST_F(RankProcesses, may_work_longer_than_a_stopped_one_is_waited_for) {
  const Ended ended = wait_for(start([](Group& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    barrier(group);
  }));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

class PassedSignal : public RankProcesses, public testing::WithParamInterface<int> {};

// A rank that has its second signal would end without a word to save its state.
TEST_P(PassedSignal, reaches_each_rank_once) {
  const std::string ready = folder_ / "ready", ended_well = folder_ / "ended";
  const pid_t id = start([&](Group& group) {
    StopDeferral deferral;
    deferral.begin();
    barrier(group);
    if (group.rank() == 0) folder_.put("ready", "");
    while (stop_wish() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    folder_.put("ended" + std::to_string(group.rank()), "");
    throw ExitStatus{128 + stop_wish()};
  });
  await(ready);
  ::kill(id, GetParam());
  EXPECT_EQ(wait_for(id).code, 128 + GetParam());
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(posix_files().exists(ended_well + std::to_string(rank))) << rank;
}
INSTANTIATE_TEST_SUITE_P(signals, PassedSignal, testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace octet::ranks_rank_processes_test
