// A loop that calls out becomes one that is called, and the two threads need no locks.
#include "library/paused_thread.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace octet {
namespace {

TEST(PausedThread, goes_from_pause_to_pause) {
  std::vector<int> seen;
  PausedThread thread([&](PausedThread& self) {
    for (int i = 0; i < 100; ++i) {
      seen.push_back(i);
      self.pause();
    }
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(seen.size(), static_cast<size_t>(i) + 1);
    EXPECT_EQ(thread.go_on(), i < 99);
  }
  EXPECT_FALSE(thread.go_on());
}

TEST(PausedThread, works_at_a_pause_on_its_own_thread) {
  const std::thread::id here = std::this_thread::get_id();
  std::thread::id body, work;
  int value = 0;
  PausedThread thread([&](PausedThread& self) {
    body = std::this_thread::get_id();
    self.pause();
    value *= 10;
  });
  for (int i = 0; i < 3; ++i) {
    thread.at_pause([&] {
      work = std::this_thread::get_id();
      ++value;
    });
  }
  EXPECT_NE(body, here);
  EXPECT_EQ(work, body);
  EXPECT_EQ(value, 3);
  EXPECT_THROW(thread.at_pause([] { throw std::runtime_error("work"); }), std::runtime_error);
  EXPECT_FALSE(thread.go_on());  // what failed was the work
  EXPECT_EQ(value, 30);
  thread.at_pause([&] { value = 0; });  // there is no pause any more
  EXPECT_EQ(value, 30);
}

TEST(PausedThread, throws_what_the_body_throws_each_time) {
  const auto fail = [](PausedThread&) { throw std::runtime_error("at once"); };
  EXPECT_THROW(PausedThread{fail}, std::runtime_error);
  PausedThread thread([](PausedThread& self) {
    self.pause();
    throw std::runtime_error("later");
  });
  EXPECT_THROW(thread.go_on(), std::runtime_error);
  EXPECT_THROW(thread.go_on(), std::runtime_error);
  EXPECT_THROW(thread.at_pause([] {}), std::runtime_error);
}

TEST(PausedThread, unwinds_the_body_where_it_is_left) {
  struct Mark {
    std::string& said;
    ~Mark() { said += "unwound"; }
  };
  std::string said;
  {
    PausedThread thread([&](PausedThread& self) {
      const Mark mark{said};
      self.pause();
      said += "went on";
    });
  }
  EXPECT_EQ(said, "unwound");
}

}  // namespace
}  // namespace octet
