// A row's bits do not depend on how many rows there are: what makes generation give the bits of
// training.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "backends/cpu/attention/attention.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/row_lanes.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "formats/bf16.h"

namespace octet::cpu {
namespace {

constexpr int64_t kCounts[] = {1,  2,  3,  4,  5,  6,   7,   8,   13, 31,
                               48, 63, 64, 65, 71, 128, 130, 192, 200};

std::vector<float> noise(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

// Values of a storage type, as bytes.
std::vector<std::byte> stored(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = bf16_from_f32(values[i]);
    const auto code = static_cast<uint8_t>(0x20 + i * 37 % 64 + (i % 2) * 128);  // finite E4M3
    const void* from = dtype == Dtype::f32    ? static_cast<const void*>(&values[i])
                       : dtype == Dtype::bf16 ? static_cast<const void*>(&half)
                                              : static_cast<const void*>(&code);
    std::memcpy(bytes.data() + i * static_cast<size_t>(dtype_bytes(dtype)), from,
                static_cast<size_t>(dtype_bytes(dtype)));
  }
  return bytes;
}

std::vector<float> product(const GemmSpec& spec, const void* a, const void* b, ThreadPool& pool) {
  std::vector<float> c(static_cast<size_t>(spec.m * spec.n), NAN);
  const Gemm gemm(spec, pool.n_threads());
  std::vector<std::byte> scratch(gemm.scratch_bytes() + 64);
  void* at = scratch.data();
  size_t space = scratch.size();
  gemm.launch({.a = a, .b = b, .c = c.data(), .scratch = std::align(64, 1, at, space)}, pool);
  return c;
}

struct RowsCase {
  Dtype dtype;
  Transpose trans_b;
  int64_t n, k;
};

class GemmRowsTest : public testing::TestWithParam<RowsCase> {};

TEST_P(GemmRowsTest, bits_are_those_of_many_rows) {
  const RowSumsScope same(RowSums::same);
  const auto [dtype, trans_b, n, k] = GetParam();
  constexpr int64_t kMany = 256;
  const auto a = stored(noise(static_cast<size_t>(kMany * k), 1), dtype);
  const auto b = stored(noise(static_cast<size_t>(n * k), 2), dtype);
  ThreadPool two(2), one(1);
  GemmSpec spec{.m = kMany, .n = n, .k = k, .a = dtype, .b = dtype, .trans_b = trans_b};
  const std::vector<float> expected = product(spec, a.data(), b.data(), two);
  for (const int64_t m : kCounts) {
    spec.m = m;
    const std::vector<float> got = product(spec, a.data(), b.data(), two);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << m;
    ASSERT_EQ(product(spec, a.data(), b.data(), one), got) << m;
    // The same rows elsewhere among others.
    for (const int64_t first : {1, 7, 37}) {
      if (first + m > kMany) continue;
      const std::byte* from = a.data() + first * k * dtype_bytes(dtype);
      const std::vector<float> moved = product(spec, from, b.data(), two);
      const float* there = expected.data() + first * n;
      ASSERT_EQ(std::memcmp(moved.data(), there, moved.size() * sizeof(float)), 0) << m << first;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, GemmRowsTest,
                         testing::Values(RowsCase{Dtype::f32, Transpose::yes, 96, 64},
                                         RowsCase{Dtype::f32, Transpose::yes, 100, 300},
                                         RowsCase{Dtype::f32, Transpose::no, 70, 768},
                                         RowsCase{Dtype::f32, Transpose::yes, 257, 1000},
                                         RowsCase{Dtype::f32, Transpose::yes, 300, 768},
                                         RowsCase{Dtype::f32, Transpose::yes, 64, 2048},
                                         RowsCase{Dtype::bf16, Transpose::yes, 96, 640},
                                         RowsCase{Dtype::bf16, Transpose::yes, 520, 801},
                                         RowsCase{Dtype::bf16, Transpose::yes, 70, 6144},
                                         RowsCase{Dtype::bf16, Transpose::no, 33, 257},
                                         RowsCase{Dtype::e4m3, Transpose::yes, 65, 520},
                                         RowsCase{Dtype::e4m3, Transpose::no, 65, 130}));

// Products below the least normal number count as zeros in all rows or in none.
TEST(GemmRows, denormal_products_of_few_rows_are_those_of_many) {
  const RowSumsScope same(RowSums::same);
  constexpr int64_t kMany = 64, kN = 64, kK = 64;
  auto a = noise(kMany * kK, 1), b = noise(kN * kK, 2);
  for (float& x : a) x *= 0x1p-70f;
  for (float& x : b) x *= 0x1p-60f;
  ThreadPool pool(1);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    GemmSpec spec{.m = kMany, .n = kN, .k = kK, .a = dtype, .b = dtype};
    spec.trans_b = Transpose::yes;
    const auto rows = stored(a, dtype), columns = stored(b, dtype);
    std::vector<float> expected = product(spec, rows.data(), columns.data(), pool);
    spec.m = 3;
    expected.resize(static_cast<size_t>(spec.m * kN));
    EXPECT_EQ(product(spec, rows.data(), columns.data(), pool), expected) << dtype_name(dtype);
  }
}

// row_dot.h's orders, one element at a time.
float summed(const float* a, const float* b, int64_t k, DotChain chain) {
  float sum = 0;
  if (chain == DotChain::steps) {
    for (int64_t i = 0; i < k; ++i) sum = std::fma(a[i], b[i], sum);
  } else if (chain == DotChain::dots) {
    for (int64_t i = 0; i < k; i += 2)
      sum = std::fma(a[i], b[i], std::fma(a[i + 1], b[i + 1], sum));
  } else {
    for (int64_t begin = 0; begin < k; begin += kDotDepth) {
      float even = 0, odd = 0;
      for (int64_t i = begin; i < begin + kDotDepth; i += 2) {
        even = std::fma(a[i], b[i], even);
        odd = std::fma(a[i + 1], b[i + 1], odd);
      }
      sum += even + odd;
    }
  }
  return sum;
}

TEST(RowDot, sums_have_the_order_of_their_chain) {
  constexpr int64_t kK = 160, kStride = 171, kRows = 9;
  const auto a = noise(kRows * kK, 1);
  for (const auto& [chain, dtype] : {std::pair{DotChain::steps, Dtype::f32},
                                     {DotChain::steps, Dtype::bf16},
                                     {DotChain::dots, Dtype::bf16},
                                     {DotChain::tiles, Dtype::bf16}}) {
    auto b = noise(kRowColumns * kStride, 2);
    const auto bytes = stored(b, dtype);
    if (dtype == Dtype::bf16) {
      for (float& x : b) x = f32_from_bf16(bf16_from_f32(x));
    }
    for (int64_t m = 1; m <= kRows; ++m) {
      std::vector<float> c(static_cast<size_t>(m * kRowColumns), NAN);
      RowDot dot{.a = a.data(), .a_stride = kK, .b = bytes.data(), .b_stride = kStride};
      dot.b_dtype = dtype;
      dot.c = c.data();
      dot.m = m;
      dot.chain = chain;
      dot.k = 64;  // in two calls, the second of which goes on
      dot_rows(dot);
      dot.a += dot.k;
      dot.b = bytes.data() + dot.k * dtype_bytes(dtype);
      dot.k = kK - dot.k;
      dot.sum = RowSum::carry;
      dot.ahead = 64;
      dot_rows(dot);
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t j = 0; j < kRowColumns; ++j) {
          const float expected = summed(a.data() + r * kK, b.data() + j * kStride, kK, chain);
          ASSERT_EQ(c[static_cast<size_t>(r * kRowColumns + j)], expected)
              << static_cast<int>(chain) << " " << dtype_name(dtype) << " " << m << " " << r;
        }
      }
    }
  }
}

// Rows as lanes: the sums of dot_rows, of any number of rows, in two calls.
TEST(RowLanes, sums_have_the_order_of_their_chain) {
  constexpr int64_t kK = 160, kStride = 171, kRows = 49;
  auto a = noise(kRows * kK, 1);
  for (const auto& [chain, dtype] : {std::pair{DotChain::steps, Dtype::f32},
                                     {DotChain::steps, Dtype::bf16},
                                     {DotChain::dots, Dtype::bf16}}) {
    if (chain == DotChain::dots && !has_dot_lanes()) continue;
    const auto bytes = stored(noise(kRowColumns * kStride, 2), dtype);
    for (float& x : a) x = f32_from_bf16(bf16_from_f32(x));
    for (const int64_t m : {1, 15, 16, 17, 33, 49}) {
      const int64_t n_lanes = (m + kLaneRows - 1) / kLaneRows * kLaneRows;
      const bool in_pairs = chain == DotChain::dots;
      std::vector<uint32_t> lanes(static_cast<size_t>(kK * n_lanes));
      for (int64_t r = 0; r < m; ++r) {
        for (int64_t k = 0; k < kK; ++k) {
          const auto bits = std::bit_cast<uint32_t>(a[static_cast<size_t>(r * kK + k)]);
          uint32_t& word = lanes[static_cast<size_t>((in_pairs ? k / 2 : k) * n_lanes + r)];
          word = !in_pairs ? bits : k % 2 == 0 ? bits >> 16U : word | bits;
        }
      }
      std::vector<float> c(static_cast<size_t>(m * kRowColumns), NAN), expected = c;
      RowDot dot{.a = a.data(), .a_stride = kK, .b = bytes.data(), .b_stride = kStride};
      dot.b_dtype = dtype;
      dot.c = expected.data();
      dot.m = m;
      dot.k = kK;
      dot.chain = chain;
      dot_rows(dot);
      RowLanes product{.a = lanes.data(), .a_stride = n_lanes, .b = bytes.data()};
      product.b_stride = kStride;
      product.b_dtype = dtype;
      product.c = c.data();
      product.m = m;
      product.k = 74;
      product.chain = chain;
      multiply_lanes(product);
      product.a = lanes.data() + product.k / (in_pairs ? 2 : 1) * n_lanes;
      product.b = bytes.data() + product.k * dtype_bytes(dtype);
      product.k = kK - product.k;
      product.sum = RowSum::carry;
      product.ahead = 64;
      multiply_lanes(product);
      ASSERT_EQ(c, expected) << static_cast<int>(chain) << " " << dtype_name(dtype) << " " << m;
    }
  }
}

// Attention of the last `q_len` of 200 tokens over a cache of `capacity` rows.
std::vector<float> attended(int64_t q_len, int64_t capacity, int64_t window) {
  constexpr int64_t kTokens = 200, kHeads = 4, kKvHeads = 2, kSize = 20;
  const auto q = noise(kTokens * kHeads * kSize, 1);
  auto k = noise(kTokens * kKvHeads * kSize, 2), v = noise(kTokens * kKvHeads * kSize, 3);
  const bool has_cache = capacity > 0;
  if (has_cache) {  // what nobody wrote must not be read
    k.resize(static_cast<size_t>(capacity * kKvHeads * kSize), NAN);
    v.resize(k.size(), NAN);
  }
  AttentionSpec spec{.q_len = q_len, .kv_len = has_cache ? capacity : kTokens, .heads = kHeads};
  spec.kv_heads = kKvHeads;
  spec.head_size = kSize;
  spec.window = window;
  spec.scale = 0.3f;
  ThreadPool pool(2);
  const AttentionForward attention(spec, pool.n_threads());
  std::vector<float> o(static_cast<size_t>(q_len * kHeads * kSize));
  std::vector<int32_t> positions;
  for (int64_t t = kTokens - q_len; t < kTokens; ++t) positions.push_back(static_cast<int32_t>(t));
  std::vector<std::byte> scratch(attention.scratch_bytes() + 64, std::byte{0xff});
  void* at = scratch.data();
  size_t space = scratch.size();
  attention.launch({.q = q.data() + (kTokens - q_len) * kHeads * kSize,
                    .k = k.data(),
                    .v = v.data(),
                    .o = o.data(),
                    .positions = has_cache ? positions.data() : nullptr,
                    .scratch = std::align(64, 1, at, space)},
                   pool);
  return o;
}

TEST(AttentionRows, bits_over_a_cache_are_those_of_the_whole_text) {
  const RowSumsScope same(RowSums::same);
  if (!library_sum_order(32).is_known()) GTEST_SKIP() << "the order of sums is not known";
  for (const int64_t window : {0, 50}) {
    const std::vector<float> whole = attended(200, 0, window);
    for (const int64_t q_len : {1, 2, 3, 7, 33, 64, 70, 199}) {
      for (const int64_t capacity : {200, 230, 1000}) {
        const std::vector<float> got = attended(q_len, capacity, window);
        const float* const expected = whole.data() + (whole.size() - got.size());
        EXPECT_EQ(std::memcmp(got.data(), expected, got.size() * sizeof(float)), 0)
            << q_len << " " << capacity << " " << window;
      }
    }
  }
}

}  // namespace
}  // namespace octet::cpu
