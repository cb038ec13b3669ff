#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/cores.h"

namespace octet::base_thread_pool_test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsMemory = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kLimitsMemory = false;
#else
constexpr bool kLimitsMemory = true;
#endif
#else
constexpr bool kLimitsMemory = true;
#endif

TEST(ThreadPool, has_the_threads_that_were_asked_for) {
  EXPECT_EQ(ThreadPool(3).n_threads(), 3);
  EXPECT_EQ(ThreadPool().n_threads(), usable_cores());
}

// 64 MiB more than there are now: room for a few stacks.
void limit_memory() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + (int64_t{64} << 20));
  const rlimit limit{bytes, bytes};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

[[noreturn]] void work_with_what_there_is() {
  alarm(20);  // a pool that waits for ever ends here
  limit_memory();
  std::atomic<int64_t> sum = 0;
  int made = 0;
  {
    ThreadPool pool(1000);
    made = pool.n_threads();
    for (int round = 0; round < 3; ++round) {
      pool.run(100, [&](int64_t tile, int) { sum += tile; });
    }
  }
  std::_Exit(made < 1 || made >= 1000 ? 4 : sum == 3 * 4950 ? 0 : 5);
}

TEST(ThreadPoolDeathTest, runs_with_the_threads_that_the_system_makes) {
  if (!kLimitsMemory) GTEST_SKIP() << "sanitizers need more memory than the limit";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(work_with_what_there_is(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octet::base_thread_pool_test
