// Ranks as processes: what collectives move, and what happens when one is killed.
#include "comm/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace octet {
namespace {

// Each process ends with what body gives.
std::vector<pid_t> fork_ranks(ProcessBoard& board, int n, const std::function<int(Group&)>& body) {
  std::vector<pid_t> ids;
  for (int rank = 0; rank < n; ++rank) {
    const pid_t id = ::fork();
    if (id == 0) ::_exit(body(*board.group(rank)));
    ids.push_back(id);
  }
  return ids;
}

// The exit status; -1 where a signal ended it.
int wait_for(pid_t id) {
  int status = 0;
  ::waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// Large enough for several pieces.
bool moves_well(Group& group) {
  const auto n = static_cast<size_t>(group.size());
  const size_t n_each = 700'001;
  for (int round = 0; round < 3; ++round) {
    std::vector<int> own(n_each, group.rank() + round), all(n * n_each), sent(2 * n), got(2 * n);
    group.all_gather(bytes(own), bytes(all), static_cast<int64_t>(n_each * sizeof(int)));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<int>(i / n_each) + round) return false;
    }
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = group.rank() * 1000 + static_cast<int>(i);
    group.all_to_all(bytes(sent), bytes(got), 2 * sizeof(int));
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != static_cast<int>(i / 2) * 1000 + 2 * group.rank() + static_cast<int>(i % 2))
        return false;
    }
    std::vector<char> text(n_each * 3, group.rank() == 1 ? 'x' : '?');
    group.broadcast(bytes(text), static_cast<int64_t>(text.size()), 1);
    if (text != std::vector<char>(text.size(), 'x')) return false;
    group.all_gather(nullptr, nullptr, 0);
  }
  return true;
}

TEST(ProcessBoard, collectives_move_what_they_say) {
  ProcessBoard board(3);
  for (const pid_t id :
       fork_ranks(board, 3, [](Group& group) { return moves_well(group) ? 7 : 1; }))
    EXPECT_EQ(wait_for(id), 7);
}

TEST(ProcessBoard, the_rank_whose_device_does_not_get_on_is_named_by_one) {
  ProcessBoard board(3, std::chrono::milliseconds(300));
  const auto ids = fork_ranks(board, 3, [](Group& group) {
    group.look(group.rank() == 2 ? 4 : 5);
    gather_value(&group, 0);
    try {
      for (;; std::this_thread::sleep_for(std::chrono::milliseconds(5)))
        group.look(group.rank() == 2 ? 4 : 5);
    } catch (const Error& error) {
      const bool is_named =
          std::string(error.what()).starts_with("[ranks] rank 2 ended: its device has not");
      return !is_named ? 1 : group.fail(error.what()) ? 2 : 3;
    }
  });
  std::vector<int> codes;
  for (const pid_t id : ids) codes.push_back(wait_for(id));
  std::ranges::sort(codes);
  EXPECT_EQ(codes, (std::vector<int>{2, 3, 3}));
}

// Killed anywhere: in the middle of a collective, or between two.
TEST(ProcessBoard, a_killed_rank_holds_nobody_back) {
  for (int trial = 0; trial < 20; ++trial) {
    ProcessBoard board(3);
    const auto ids = fork_ranks(board, 3, [](Group& group) {
      std::vector<int> own(300'000), all(900'000);
      try {
        while (true) group.all_gather(bytes(own), bytes(all), 300'000 * sizeof(int));
      } catch (const Error& error) {
        return std::string_view(error.what()) == "[ranks] rank 2 ended: killed" ? 9 : 1;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + trial));
    ::kill(ids[2], SIGKILL);
    EXPECT_EQ(wait_for(ids[2]), -1);
    board.fail(2, "killed");
    board.fail(0, "a later word changes nothing");
    EXPECT_EQ(wait_for(ids[0]), 9);
    EXPECT_EQ(wait_for(ids[1]), 9);
  }
}

TEST(ProcessBoard, ranks_that_move_different_sizes_are_told) {
  ProcessBoard board(2);
  const auto ids = fork_ranks(board, 2, [](Group& group) {
    std::vector<int> own(4), all(8);
    try {
      group.all_gather(bytes(own), bytes(all), group.rank() == 0 ? 8 : 4);
    } catch (const Error&) {
      return 3;
    }
    return 0;
  });
  for (const pid_t id : ids) EXPECT_EQ(wait_for(id), 3);
}

}  // namespace
}  // namespace octet
