#include "base/integer.h"

#include <gtest/gtest.h>

namespace octet::base_integer_test {
namespace {

TEST(Integer, ceil_div_does_not_wrap) {
  EXPECT_EQ(ceil_div(0, 5), 0);
  EXPECT_EQ(ceil_div(10, 5), 2);
  EXPECT_EQ(ceil_div(11, 5), 3);
  EXPECT_EQ(ceil_div(4, INT64_MAX), 1);
  EXPECT_EQ(ceil_div(INT64_MAX, INT64_MAX), 1);
  EXPECT_EQ(ceil_div(INT64_MAX, 2), (INT64_MAX >> 1) + 1);
}

}  // namespace
}  // namespace octet::base_integer_test
