// Ranks over TCP, as threads of one process, under the thread sanitizer: the thread that watches
// beside the one that works, while ranks move, fail and end.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/tcp/group.h"

namespace octet::tcp {
namespace {

using std::chrono::milliseconds;

// Each rank on a thread of its own.
template <typename Body>
void run_ranks(int n, const ControlOptions& options, const Body& body) {
  const int port = port_of(listen_at("127.0.0.1", 0));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = join_ranks({.rank = rank,
                                     .size = n,
                                     .addresses = {"127.0.0.1"},
                                     .port = port,
                                     .patience = milliseconds(30'000)},
                                    options);
      body(*group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpRanks, move_beside_their_signs_of_life) {
  std::atomic<int> n_wrong = 0;
  run_ranks(3, {.silence = milliseconds(20'000)}, [&](Group& group) {
    for (int round = 0; round < 200; ++round) {
      const std::vector<int> all = gather_value(&group, group.rank() + round);
      for (int r = 0; r < 3; ++r) n_wrong += all[static_cast<size_t>(r)] != r + round;
    }
  });
  EXPECT_EQ(n_wrong, 0);
}

TEST(TcpRanks, fail_all_at_once_with_one_failure_that_counts) {
  for (int round = 0; round < 10; ++round) {
    std::atomic<int> n_first = 0, n_ended = 0, n_stuck = 0;
    const ControlOptions options{.silence = milliseconds(20'000),
                                 .grace = milliseconds(1),
                                 .on_stuck = [&](const Error&) { ++n_stuck; }};
    std::barrier all_there(3);  // a failure ends whatever the others wait for
    run_ranks(3, options, [&](Group& group) {
      gather_value(&group, 1);
      all_there.arrive_and_wait();
      n_first += group.fail("[test] ends") ? 1 : 0;
      try {
        gather_value(&group, 1);
      } catch (const Error&) {
        ++n_ended;
      }
      std::this_thread::sleep_for(milliseconds(100));
    });
    EXPECT_EQ(n_first, 1);
    EXPECT_EQ(n_ended, 3);
    EXPECT_EQ(n_stuck, 3);
  }
}

}  // namespace
}  // namespace octet::tcp
