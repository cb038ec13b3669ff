// Strided copies against index arithmetic, for elements of 1, 2 and 4 bytes.
#include "backends/cpu/elementwise/move.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace octet::cpu {
namespace {

struct MoveCase {
  std::string name;
  StridedCopy copy;
  int64_t n_src, n_dst;
};

const MoveCase kCases[] = {
    {"dense", {0, 0, {3, 5, 7}, {35, 7, 1}, {35, 7, 1}}, 105, 105},
    {"columns_of_rows", {16, 0, {9, 16}, {48, 1}, {16, 1}}, 432, 144},
    {"gradient_pad", {0, 16, {9, 16}, {16, 1}, {48, 1}}, 144, 432},
    {"every_third", {1, 0, {4, 5}, {40, 3}, {5, 1}}, 160, 20},
    {"spread_out", {0, 2, {4, 5}, {5, 1}, {30, 4}}, 20, 130},
    {"matrix_transpose", {0, 0, {70, 45}, {1, 70}, {45, 1}}, 3150, 3150},
    {"heads_forward", {0, 0, {2, 3, 5, 8}, {120, 8, 24, 1}, {120, 40, 8, 1}}, 240, 240},
    {"batched_transpose", {0, 0, {3, 37, 41}, {1517, 1, 37}, {1517, 41, 1}}, 4551, 4551},
    {"repeated_row", {0, 0, {6, 33}, {0, 1}, {33, 1}}, 33, 198},
    {"repeated_column", {0, 0, {6, 33}, {1, 0}, {33, 1}}, 6, 198},
    {"scalar", {3, 2, {}, {}, {}}, 5, 4},
    {"empty", {0, 0, {0, 4}, {4, 1}, {4, 1}}, 1, 1},
    {"long_line", {0, 0, {40000}, {1}, {1}}, 40000, 40000},
};

template <typename T>
std::vector<T> expected(const MoveCase& c, const std::vector<T>& src, T poison) {
  std::vector<T> dst(static_cast<size_t>(c.n_dst), poison);
  int64_t n = 1;
  for (const int64_t e : c.copy.extent) n *= e;
  for (int64_t flat = 0; flat < n; ++flat) {
    int64_t rest = flat, from = c.copy.src_start, to = c.copy.dst_start;
    for (size_t k = c.copy.extent.size(); k-- > 0;) {
      from += rest % c.copy.extent[k] * c.copy.src_stride[k];
      to += rest % c.copy.extent[k] * c.copy.dst_stride[k];
      rest /= c.copy.extent[k];
    }
    dst[static_cast<size_t>(to)] = src[static_cast<size_t>(from)];
  }
  return dst;
}

template <typename T>
void expect_copies() {
  for (const MoveCase& c : kCases) {
    std::vector<T> src(static_cast<size_t>(c.n_src));
    for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<T>(i * 2654435761u >> 7);
    constexpr T kPoison = static_cast<T>(0xA5A5A5A5u);
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      std::vector<T> dst(static_cast<size_t>(c.n_dst), kPoison);
      copy_strided(simplified(c.copy), src.data(), dst.data(), sizeof(T), pool);
      EXPECT_EQ(dst, expected(c, src, kPoison)) << c.name << " " << sizeof(T);
    }
  }
}

TEST(move, copies_one_byte) {
  expect_copies<uint8_t>();
}
TEST(move, copies_two_bytes) {
  expect_copies<uint16_t>();
}
TEST(move, copies_four_bytes) {
  expect_copies<uint32_t>();
}

TEST(move, neighbouring_axes_join) {
  const StridedCopy dense = simplified({0, 0, {3, 1, 5, 7}, {35, 35, 7, 1}, {35, 9, 7, 1}});
  EXPECT_EQ(dense.extent, std::vector<int64_t>({105}));
  const StridedCopy columns = simplified({0, 0, {9, 16}, {48, 1}, {16, 1}});
  EXPECT_EQ(columns.extent, std::vector<int64_t>({9, 16}));
}

TEST(move, other_sizes_are_refused) {
  ThreadPool pool(1);
  double from = 1, to = 2;
  EXPECT_THROW(copy_strided(simplified({}), &from, &to, 8, pool), Error);
}

TEST(move, elements_repeat) {
  ThreadPool pool(2);
  std::vector<uint16_t> dst(40001, 1);
  const uint16_t element = 0x3F80;
  fill_elements(dst.data(), 40000, {&element, 2}, pool);
  EXPECT_EQ(dst.back(), 1);
  dst.pop_back();
  EXPECT_EQ(dst, std::vector<uint16_t>(40000, element));
}

}  // namespace
}  // namespace octet::cpu
