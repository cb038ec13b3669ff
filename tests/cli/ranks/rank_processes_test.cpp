// Ranks as processes, and who watches them: statuses, lines, kills and signals.
#include "cli/rank_processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/error.h"
#include "cli/common.h"
#include "cli/signals.h"
#include "unit/base/scratch_folder.h"

namespace octet {
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
    install_signals();
    ::_exit(run_rank_processes(3, body, "; go on", std::chrono::seconds(1)));
  }
  Ended wait_for(pid_t id) {
    int status = 0;
    ::waitpid(id, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            posix_files().read_text(folder_ / "err.txt")};
  }
  static void meet(Group& group) { gather_value(&group, group.rank()); }

  const ScratchFolder folder_;
};

TEST_F(RankProcesses, that_all_end_well_give_0_and_no_word) {
  const Ended ended = wait_for(start(meet));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "");
}

TEST_F(RankProcesses, say_an_error_once_by_the_rank_that_has_it) {
  const Ended ended = wait_for(start([](Group& group) {
    meet(group);
    if (group.rank() == 1) throw Error(ErrorCode::bad_data, "[data] broken");
    while (true) meet(group);
  }));
  EXPECT_EQ(ended.code, 3);
  EXPECT_EQ(ended.err, "octet: [rank 1] [data] broken\n");
}

TEST_F(RankProcesses, are_named_where_they_are_killed) {
  const Ended ended = wait_for(start([](Group& group) {
    meet(group);
    if (group.rank() == 2) ::kill(::getpid(), SIGKILL);
    while (true) meet(group);
  }));
  EXPECT_EQ(ended.code, 75);
  EXPECT_EQ(ended.err, "octet: [ranks] rank 2 ended: killed by signal 9 (Killed); go on\n");
}

TEST_F(RankProcesses, are_named_where_they_are_stopped) {
  const Ended ended = wait_for(start([](Group& group) {
    meet(group);
    if (group.rank() == 1) ::kill(::getpid(), SIGSTOP);
    while (true) meet(group);
  }));
  EXPECT_EQ(ended.code, 75);
  EXPECT_EQ(ended.err, "octet: [ranks] rank 1 ended: no sign of life for 1 s (stopped); go on\n");
}

TEST_F(RankProcesses, may_work_longer_than_a_stopped_one_is_waited_for) {
  const Ended ended = wait_for(start([](Group& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    meet(group);
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
    meet(group);
    if (group.rank() == 0) folder_.put("ready", "");
    while (stop_wish() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    folder_.put("ended" + std::to_string(group.rank()), "");
    throw ExitStatus{128 + stop_wish()};
  });
  for (int i = 0; i < 2000 && !posix_files().exists(ready); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(id, GetParam());
  EXPECT_EQ(wait_for(id).code, 128 + GetParam());
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(posix_files().exists(ended_well + std::to_string(rank))) << rank;
}
INSTANTIATE_TEST_SUITE_P(signals, PassedSignal, testing::Values(SIGINT, SIGTERM, SIGHUP));

}  // namespace
}  // namespace octet
