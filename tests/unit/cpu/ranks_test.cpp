// Sums over ranks, as they are rounded.
#include "backends/cpu/ranks/ranks.h"

#include <gtest/gtest.h>

#include <vector>

#include "formats/codec.h"

namespace octet::cpu {
namespace {

// What overflows is found by the check that lets all ranks skip the step.
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

}  // namespace
}  // namespace octet::cpu
