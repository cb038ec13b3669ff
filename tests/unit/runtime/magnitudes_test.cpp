#include "runtime/magnitudes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "formats/codec.h"

namespace octet::runtime_magnitudes_test {
namespace {

// Pieces of several threads and a ragged end.
constexpr size_t kElements = (1 << 19) + 13;

// Every code of the format, over and over, in an order of no pattern.
std::vector<std::byte> all_codes(Dtype dtype) {
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  std::vector<std::byte> bytes(kElements * width);
  for (size_t i = 0; i < kElements; ++i) {
    const uint64_t code = i * 0x9E3779B97F4A7C15u >> 20;
    std::memcpy(bytes.data() + i * width, &code, width);
  }
  if (dtype == Dtype::f32) {  // too many to have them all
    const float rare[] = {-std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()};
    std::memcpy(bytes.data() + sizeof(rare), rare, sizeof(rare));
  }
  return bytes;
}

double value_at(Dtype dtype, const std::vector<std::byte>& bytes, size_t i) {
  const auto width = static_cast<size_t>(bytes_of(dtype, 1));
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + i * width, width);
  const float x = dtype == Dtype::f32 ? std::bit_cast<float>(code) : decode(dtype, code);
  return static_cast<double>(x);
}

// One element after the other.
double largest_by_walk(Dtype dtype, const std::vector<std::byte>& bytes, Infinities infinities) {
  double largest = 0;
  for (size_t i = 0; i < kElements; ++i) {
    const double x = std::fabs(value_at(dtype, bytes, i));
    const bool is_left_out = std::isnan(x) || (std::isinf(x) && infinities == Infinities::left_out);
    if (!is_left_out) largest = std::max(largest, x);
  }
  return largest;
}

TEST(Magnitudes, are_those_of_a_walk_for_every_format_and_any_number_of_threads) {
  for (const Dtype dtype :
       {Dtype::f32, Dtype::bf16, Dtype::fp16, Dtype::e4m3, Dtype::e5m2, Dtype::hif8}) {
    const std::vector<std::byte> bytes = all_codes(dtype);
    for (const int n_threads : {1, 3}) {
      ThreadPool pool(n_threads);
      for (const Infinities infinities : {Infinities::counted, Infinities::left_out}) {
        const double largest = largest_magnitude(pool, dtype, bytes, infinities);
        EXPECT_EQ(largest, largest_by_walk(dtype, bytes, infinities)) << dtype_name(dtype);
        EXPECT_EQ(std::isinf(largest), infinities == Infinities::counted && dtype != Dtype::e4m3)
            << dtype_name(dtype);
      }
    }
  }
}

TEST(Magnitudes, of_nothing_and_of_nan_alone_are_zero) {
  ThreadPool pool(2);
  EXPECT_EQ(largest_magnitude(pool, Dtype::f32, {}, Infinities::counted), 0);
  const std::vector<float> nan(5, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(largest_magnitude(pool, Dtype::f32, std::as_bytes(std::span(nan)), Infinities::counted),
            0);
}

TEST(CodeCounts, are_those_of_a_walk) {
  const std::vector<std::byte> codes = all_codes(Dtype::e4m3);
  CodeCounts expected{};
  for (const std::byte code : codes) ++expected[static_cast<size_t>(code)];
  for (const int n_threads : {1, 3}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(code_counts(pool, codes), expected);
  }
}

}  // namespace
}  // namespace octet::runtime_magnitudes_test
