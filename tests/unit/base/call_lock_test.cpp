#include "base/call_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "unit/base/error_of.h"

namespace octet::base_call_lock_test {
namespace {

using test::error_of;

// The exit status of a forked child that runs `body`; 14 (SIGALRM) where it hangs.
template <typename Body>
int status_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::_Exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
}

int64_t sum_in(ThreadPool& pool) {
  std::atomic<int64_t> sum = 0;
  pool.run(100, [&](int64_t tile, int) { sum += tile; });
  return sum;
}

TEST(ThreadPool, works_in_forked_children_and_goes_on_in_the_parent) {
  ThreadPool pool(3);
  EXPECT_EQ(sum_in(pool), 4950);
  const auto works = [&] { return sum_in(pool) == 4950 && pool.n_threads() == 3 ? 0 : 1; };
  EXPECT_EQ(status_in_child(works), 0);
  EXPECT_EQ(status_in_child([&] { return status_in_child(works); }), 0);
  EXPECT_EQ(sum_in(pool), 4950);
}

TEST(ThreadPool, is_destroyed_in_forked_children_without_its_threads) {
  auto pool = std::make_unique<ThreadPool>(3);
  EXPECT_EQ(sum_in(*pool), 4950);
  EXPECT_EQ(status_in_child([&] {
              pool.reset();
              return 0;
            }),
            0);
}

TEST(CallLock, lets_one_thread_in_at_a_time) {
  CallLock lock;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) {
        const CallLock::Held held = lock.enter("test");
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4000);
}

TEST(CallLock, refuses_a_call_within_a_call) {
  CallLock lock;
  const CallLock::Held held = lock.enter("test");
  EXPECT_EQ(error_of([&] { const CallLock::Held again = lock.enter("test"); }),
            "[test] expected no call within another one, got one from its callback");
}

TEST(CallLock, asks_a_waiting_thread_now_and_then_whether_it_gives_up) {
  CallLock lock;
  const CallLock::Held held = lock.enter("test");
  std::string message;
  std::thread([&] {
    message = error_of([&] {
      const CallLock::Held again =
          lock.enter("test", [] { throw Error(ErrorCode::internal, "interrupted"); });
    });
  }).join();
  EXPECT_EQ(message, "interrupted");
}

TEST(CallLock, is_free_in_a_child_of_a_fork_between_calls) {
  CallLock lock;
  { const CallLock::Held held = lock.enter("test"); }
  EXPECT_EQ(status_in_child([&] {
              const CallLock::Held held = lock.enter("test");
              return 0;
            }),
            0);
}

TEST(CallLock, says_that_a_process_forked_during_a_call) {
  CallLock lock;
  const CallLock::Held held = lock.enter("test");
  EXPECT_EQ(status_in_child([&] {
              const std::string message =
                  error_of([&] { const CallLock::Held again = lock.enter("test"); });
              return message.find("forked during a call") != std::string::npos ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace octet::base_call_lock_test
