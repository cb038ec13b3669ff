#include "runtime/edge_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "formats/codec.h"

namespace octet::runtime_edge_statistics_test {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(EdgeStatistics, of_wide_values) {
  const std::vector<float> values = {3, -4, 0, 0, NAN, INFINITY};
  ThreadPool pool(1);
  const EdgeStatistics edge = count_edge(Dtype::f32, bytes_of(values), pool);
  EXPECT_EQ(edge.n, 4);
  EXPECT_DOUBLE_EQ(edge.rms, 2.5);
  EXPECT_EQ(edge.amax, 4);
  EXPECT_DOUBLE_EQ(edge.zeros, 2.0 / 6);
  EXPECT_EQ(edge.saturated, 0);
  EXPECT_EQ(edge.rescale(), 0);  // f32 has no window
}

TEST(EdgeStatistics, of_codes_count_what_saturates) {
  std::vector<uint8_t> codes;
  for (const float x : {448.0f, -448.0f, 1.0f, 0.0f})
    codes.push_back(static_cast<uint8_t>(encode(Dtype::e4m3, x)));
  ThreadPool pool(1);
  const EdgeStatistics edge = count_edge(Dtype::e4m3, bytes_of(codes), pool);
  EXPECT_EQ(edge.saturated, 0.5);
  EXPECT_EQ(edge.zeros, 0.25);
  EXPECT_EQ(edge.amax, 448);
}

TEST(EdgeStatistics, outside_the_window_a_rescale_brings_the_data_to_its_middle) {
  for (const int log2 : {-20, -5, -4, 0, 6, 7, 12}) {
    EdgeStatistics edge{
        .dtype = Dtype::e4m3, .rms = std::ldexp(1.0, log2 + 3), .saturated = 0.01, .scale = 8};
    EXPECT_DOUBLE_EQ(edge.drift(), log2);
    EXPECT_EQ(edge.rescale(), log2 >= -4 && log2 <= 6 ? 0 : 1 - log2);
  }
  const EdgeStatistics by_maximum{.dtype = Dtype::e4m3, .rms = 256, .saturated = 1e-5};
  EXPECT_EQ(by_maximum.rescale(), 0);
  const EdgeStatistics zeros{.dtype = Dtype::e5m2};
  EXPECT_EQ(zeros.rescale(), 0);
}

}  // namespace
}  // namespace octet::runtime_edge_statistics_test
