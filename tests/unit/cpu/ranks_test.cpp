// Sums over ranks, as they are rounded.
#include "backends/cpu/ranks/ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/local.h"
#include "formats/codec.h"

namespace octet::cpu {
namespace {

// An overflow is found by the check that lets all ranks skip the step.
TEST(ReduceScatter, of_fp16_keeps_an_infinity_a_nan_and_an_overflow) {
  constexpr uint16_t kLargest = 0x7BFF, kInf = 0x7C00, kOne = 0x3C00, kTwo = 0x4000;
  const std::vector<uint16_t> into = {kLargest, 0xFBFF, kOne, kOne, kOne, 0x7C01};
  const std::vector<uint16_t> part = {kLargest, 0xFBFF, kInf, 0xFC00, kOne, kOne};
  std::vector<uint16_t> sum(6);
  std::vector<std::byte> scratch(64);
  reduce_scatter({.n = 6, .shard = 6}, {{part.data(), Dtype::fp16}}, {into.data(), Dtype::fp16},
                 {sum.data(), Dtype::fp16}, scratch.data());
  const std::vector<uint16_t> want = {kInf, 0xFC00, kInf, 0xFC00, kTwo};
  EXPECT_EQ(std::vector<uint16_t>(sum.begin(), sum.end() - 1), want);
  EXPECT_TRUE(is_nan(decode(Dtype::fp16, sum.back())));
}

// In f32 2^24 + 1 is 2^24, and 1 - 2^24 is itself.
TEST(ReduceScatter, adds_up_neighbours_first_where_it_is_told_to) {
  constexpr float kBig = 16777216;
  constexpr float kParts[] = {kBig, 1, 1, -kBig};
  const auto sum_of = [&](int64_t a_host, float into) {
    float result = 0;
    auto groups = local_groups(4);
    run_local_ranks(groups, [&](Group& group) {
      const std::vector<float> x(1024, kParts[group.rank()]), before(256, into);
      std::vector<float> y(256);
      std::vector<std::byte> scratch(2 * 1024 * sizeof(float));
      reduce_scatter({.group = &group, .n = 1024, .shard = 256, .a_host = a_host},
                     {{x.data(), Dtype::f32}}, into == 0 ? In{} : In{before.data(), Dtype::f32},
                     {y.data(), Dtype::f32}, scratch.data());
      if (group.rank() == 3) result = y[255];
    });
    return result;
  };
  EXPECT_EQ(sum_of(0, 0), 0);              // ((2^24 + 1) + 1) - 2^24
  EXPECT_EQ(sum_of(2, 0), 1);              // (2^24 + 1) + (1 - 2^24)
  EXPECT_EQ(sum_of(0, 1), 0);              // (((1 + 2^24) + 1) + 1) - 2^24
  EXPECT_EQ(sum_of(2, -kBig), -kBig + 1);  // (-2^24 + (2^24 + 1)) + (1 - 2^24)
}

}  // namespace
}  // namespace octet::cpu
