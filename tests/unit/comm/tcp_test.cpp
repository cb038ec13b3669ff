// Ranks as processes over TCP: how they find each other, what collectives move, and what happens
// when one fails, is killed or is stopped.
#include "comm/tcp/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "unit/base/scratch_folder.h"

namespace octet::tcp {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A port that was free a moment ago.
int free_port() {
  return port_of(listen_at("127.0.0.1", 0));
}

template <typename T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

class TcpRanks : public testing::Test {
 protected:
  Place place(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .addresses = {"127.0.0.1"},
            .port = port_,
            .patience = milliseconds(20'000)};
  }
  // A process that ends with what body gives, or writes its error down and ends with 99.
  pid_t start(const Place& place, const std::function<int(Group&)>& body) {
    const pid_t id = ::fork();
    if (id != 0) return id;
    int code = 99;
    try {
      const auto group = join_ranks(place, options_);
      try {
        code = body(*group);
      } catch (const Error& error) {
        group->fail(error.what());
        folder_.put(std::to_string(place.rank), error.what());
      }
    } catch (const Error& error) {
      folder_.put(std::to_string(place.rank), error.what());
    }
    ::_exit(code);
  }
  std::vector<pid_t> start_all(int n, const std::function<int(Group&)>& body) {
    std::vector<pid_t> ids;
    for (int rank = n - 1; rank >= 0; --rank) ids.insert(ids.begin(), start(place(rank, n), body));
    return ids;
  }
  // The exit status; -1 where a signal ended it.
  static int wait_for(pid_t id) {
    int status = 0;
    ::waitpid(id, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string error_of(int rank) const {
    return posix_files().read_text(folder_ / std::to_string(rank));
  }

  const test::ScratchFolder folder_;
  const int port_ = free_port();
  ControlOptions options_{.silence = milliseconds(20'000), .grace = milliseconds(500)};
};

// Large enough that a connection takes it in several parts, both ways at once.
bool moves_well(Group& group) {
  const auto n = static_cast<size_t>(group.size());
  const size_t n_each = 2'700'001;
  for (int round = 0; round < 3; ++round) {
    std::vector<int> own(n_each, group.rank() + round), all(n * n_each), sent(n * n_each),
        got(n * n_each);
    group.all_gather(bytes(own), bytes(all), static_cast<int64_t>(n_each * sizeof(int)));
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i] != static_cast<int>(i / n_each) + round) return false;
    }
    for (size_t i = 0; i < sent.size(); ++i)
      sent[i] = group.rank() * 1000 + static_cast<int>(i / n_each);
    group.all_to_all(bytes(sent), bytes(got), static_cast<int64_t>(n_each * sizeof(int)));
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] != static_cast<int>(i / n_each) * 1000 + group.rank()) return false;
    }
    const int root = round % group.size();
    std::vector<char> text(n_each, group.rank() == root ? 'x' : '?');
    group.broadcast(bytes(text), static_cast<int64_t>(text.size()), root);
    if (text != std::vector<char>(text.size(), 'x')) return false;
    group.all_gather(nullptr, nullptr, 0);
  }
  return true;
}

TEST_F(TcpRanks, collectives_move_what_they_say) {
  for (const int n : {2, 4}) {
    for (const pid_t id : start_all(n, [](Group& group) { return moves_well(group) ? 7 : 1; }))
      EXPECT_EQ(wait_for(id), 7) << n;
  }
}

int gather_forever(Group& group) {
  std::vector<int> own(300'000), all(own.size() * static_cast<size_t>(group.size()));
  while (true) group.all_gather(bytes(own), bytes(all), 300'000 * sizeof(int));
}

TEST_F(TcpRanks, an_error_of_one_ends_all_with_its_words) {
  for (int bad = 0; bad < 3; ++bad) {
    const auto ids = start_all(3, [&](Group& group) {
      gather_value(&group, 1);
      if (group.rank() == bad) throw Error(ErrorCode::io, "[disk] full");
      return gather_forever(group);
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(wait_for(ids[static_cast<size_t>(rank)]), 99);
      EXPECT_EQ(error_of(rank), rank == bad
                                    ? "[disk] full"
                                    : fmt::format("[ranks] rank {} ended: [disk] full", bad));
    }
  }
}

class GoneRank : public TcpRanks, public testing::WithParamInterface<int> {};

TEST_P(GoneRank, is_named_by_all_others) {
  const int gone = GetParam();
  options_.silence = milliseconds(1'000);
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto ids = start_all(3, gather_forever);
    std::this_thread::sleep_for(milliseconds(300));
    ::kill(ids[static_cast<size_t>(gone)], signal);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == gone) continue;
      EXPECT_EQ(wait_for(ids[static_cast<size_t>(rank)]), 99);
      EXPECT_THAT(error_of(rank), testing::StartsWith(fmt::format(
                                      "[ranks] rank {} ended: {}", gone,
                                      signal == SIGKILL ? "its connection closed without a word"
                                                        : "no sign of life for 1 s")));
    }
    ::kill(ids[static_cast<size_t>(gone)], SIGKILL);
    wait_for(ids[static_cast<size_t>(gone)]);
  }
}
INSTANTIATE_TEST_SUITE_P(each, GoneRank, testing::Values(0, 1, 2));

TEST_F(TcpRanks, that_work_longer_than_a_sign_of_life_may_take_are_well) {
  options_.silence = milliseconds(1'000);
  const auto ids = start_all(2, [](Group& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(milliseconds(2'500));
    return gather_values(&group, std::span<const int>(std::vector<int>(1'000'000, 3)))[0];
  });
  for (const pid_t id : ids) EXPECT_EQ(wait_for(id), 3);
}

TEST_F(TcpRanks, that_go_on_working_after_a_failure_are_told_beside_their_work) {
  options_.on_stuck = [](const Error& failure) {
    const bool is_told = failure.what() == std::string("[ranks] rank 1 ended: [disk] full");
    ::_exit(is_told && failure.code() == ErrorCode::device ? 42 : 1);
  };
  const auto ids = start_all(2, [](Group& group) {
    gather_value(&group, 1);  // or the failure would end what still joins
    if (group.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(300));
      throw Error(ErrorCode::io, "[disk] full");
    }
    std::this_thread::sleep_for(milliseconds(20'000));
    return 0;
  });
  EXPECT_EQ(wait_for(ids[0]), 42);
  EXPECT_EQ(wait_for(ids[1]), 99);
}

// The rank that is behind waits for its device as the others do, or is busy with something else.
TEST_F(TcpRanks, whose_devices_do_not_get_on_name_the_one_behind) {
  options_.silence = milliseconds(2'500);
  options_.stuck = milliseconds(1'000);
  for (const bool waits : {true, false}) {
    const auto ids = start_all(3, [&](Group& group) {
      group.look(group.rank() == 1 ? 4 : 5);
      if (group.rank() == 1 && !waits) std::this_thread::sleep_for(milliseconds(3'000));
      for (;; std::this_thread::sleep_for(milliseconds(5))) group.look(group.rank() == 1 ? 4 : 5);
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(wait_for(ids[static_cast<size_t>(rank)]), 99);
      EXPECT_THAT(error_of(rank), testing::StartsWith("[ranks] rank 1 ended: its device has not"));
    }
  }
}

TEST_F(TcpRanks, in_different_collectives_are_told) {
  const auto ids = start_all(2, [](Group& group) {
    std::vector<int> own(4), all(8);
    group.all_gather(bytes(own), bytes(all), group.rank() == 0 ? 8 : 4);
    return 0;
  });
  for (const pid_t id : ids) EXPECT_EQ(wait_for(id), 99);
  EXPECT_THAT(error_of(0), HasSubstr("all_gather of 8 bytes"));
  EXPECT_THAT(error_of(0), HasSubstr("all_gather of 4 bytes"));
}

TEST_F(TcpRanks, name_those_that_do_not_come) {
  Place first = place(0, 4), second = place(2, 4);
  first.patience = milliseconds(700);
  const auto never = [](Group&) { return 0; };
  const std::vector<pid_t> ids = {start(first, never), start(second, never)};
  for (const pid_t id : ids) EXPECT_EQ(wait_for(id), 99);
  const std::string expected = fmt::format(
      "[ranks] expected 4 ranks at 127.0.0.1:{} within 0.7 s, without rank 1, 3", port_);
  EXPECT_EQ(error_of(0), expected);
  EXPECT_EQ(error_of(2), expected);
}

TEST_F(TcpRanks, find_no_rank_0) {
  Place alone = place(1, 2);
  alone.patience = milliseconds(300);
  EXPECT_EQ(wait_for(start(alone, [](Group&) { return 0; })), 99);
  EXPECT_EQ(error_of(1), fmt::format("[ranks] rank 1 found no rank 0 at 127.0.0.1:{} within 0.3 s: "
                                     "Connection refused",
                                     port_));
}

TEST_F(TcpRanks, that_expect_other_numbers_of_ranks_end_all) {
  const auto never = [](Group&) { return 0; };
  const std::vector<pid_t> ids = {start(place(0, 2), never), start(place(1, 3), never)};
  for (const pid_t id : ids) EXPECT_EQ(wait_for(id), 99);
  EXPECT_EQ(error_of(0), "[ranks] rank 1 expects 3 ranks, rank 0 2");
  EXPECT_EQ(error_of(1), "[ranks] rank 1 expects 3 ranks, rank 0 2");
}

TEST_F(TcpRanks, find_the_port_in_use) {
  const Socket other = listen_at("127.0.0.1", port_);
  EXPECT_EQ(wait_for(start(place(0, 2), [](Group&) { return 0; })), 99);
  EXPECT_EQ(error_of(0), fmt::format("[ranks] cannot take connections at port {}: Address already "
                                     "in use (choose another)",
                                     port_));
}

// A port scanner, or a browser.
TEST_F(TcpRanks, leave_strangers_standing) {
  const pid_t root = start(place(0, 2), [](Group& group) { return moves_well(group) ? 7 : 1; });
  std::string problem;
  Socket stranger;
  while (!stranger)
    stranger = connect_to("127.0.0.1", port_, Clock::now() + milliseconds(100), problem);
  const std::string words = "GET / HTTP/1.1\r\nHost: rank-zero.example\r\n\r\n";
  EXPECT_TRUE(send_all(stranger, words.data(), words.size(), Clock::now() + milliseconds(500)));
  const pid_t other = start(place(1, 2), [](Group& group) { return moves_well(group) ? 7 : 1; });
  EXPECT_EQ(wait_for(root), 7);
  EXPECT_EQ(wait_for(other), 7);
}

// Each was heard for five seconds, one after the other.
TEST_F(TcpRanks, hear_strangers_that_say_nothing_beside_the_ranks) {
  const auto began = Clock::now();
  Place at_root = place(0, 2);
  at_root.patience = milliseconds(4000);
  const pid_t root = start(at_root, [](Group& group) { return moves_well(group) ? 7 : 1; });
  std::vector<Socket> strangers(6);
  std::string problem;
  for (size_t i = 0; i < strangers.size(); ++i) {
    while (!strangers[i])
      strangers[i] = connect_to("127.0.0.1", port_, Clock::now() + milliseconds(100), problem);
    // Some begin as ranks do.
    if (i % 2 == 1) send_all(strangers[i], "octet-r", i, Clock::now() + milliseconds(500));
  }
  const pid_t other = start(place(1, 2), [](Group& group) { return moves_well(group) ? 7 : 1; });
  EXPECT_EQ(wait_for(root), 7);
  EXPECT_EQ(wait_for(other), 7);
  EXPECT_LT(Clock::now() - began, milliseconds(4000));
}

}  // namespace
}  // namespace octet::tcp
