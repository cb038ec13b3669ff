#include "comm/tcp/control.h"

#include <gtest/gtest.h>

namespace octet::comm_progress_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Progress : public testing::Test {
 protected:
  // After so many milliseconds, asked for each.
  std::optional<int> after(int ms, const std::vector<int64_t>& progress) {
    std::optional<int> found;
    for (const auto end = now_ + milliseconds(ms); now_ < end; now_ += milliseconds(1))
      found = watch_.behind(progress, now_);
    return found;
  }
  ProgressWatch watch_{seconds(2)};
  ProgressWatch::Clock::time_point now_ = ProgressWatch::Clock::now();
};

TEST_F(Progress, names_the_rank_behind_once_nobody_gets_on) {
  EXPECT_FALSE(after(1900, {5, 4, 5}));
  EXPECT_FALSE(after(1900, {6, 4, 5}));
  EXPECT_EQ(after(2100, {6, 4, 5}), 1);
  EXPECT_EQ(watch_.text(), "its device has not got on, and others wait for it, for 2 s");
}

TEST_F(Progress, is_counted_while_somebody_waits) {
  EXPECT_FALSE(after(1900, {5, 4}));
  now_ += seconds(600);  // ranks were busy with other things than their devices
  EXPECT_FALSE(after(1900, {5, 4}));
  EXPECT_EQ(after(200, {5, 4}), 1);
}

TEST_F(Progress, says_where_all_are_as_far) {
  EXPECT_EQ(after(2100, {7, 7}), 0);
  EXPECT_EQ(watch_.text(), "no rank's device has got on for 2 s");
}

}  // namespace
}  // namespace octet::comm_progress_test
