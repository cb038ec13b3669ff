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
#include "backends/cpu/gemm/row_pairs.h"
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
      product.fetch = Fetch::next_columns;
      multiply_lanes(product);
      ASSERT_EQ(c, expected) << static_cast<int>(chain) << " " << dtype_name(dtype) << " " << m;
    }
  }
}

// Few rows of pairs: the sums of dot_rows, in two calls.
TEST(RowPairs, sums_have_the_order_of_their_chain) {
  if (!has_dot_lanes()) GTEST_SKIP() << "no instruction for pairs of bf16";
  constexpr int64_t kK = 160, kStride = 171;
  auto a = noise(kMaxPairRows * kK, 1);
  for (float& x : a) x = f32_from_bf16(bf16_from_f32(x));
  const auto rows = stored(a, Dtype::bf16);
  const auto columns = stored(noise(kRowColumns * kStride, 2), Dtype::bf16);
  for (int64_t m = 1; m <= kMaxPairRows; ++m) {
    std::vector<float> c(static_cast<size_t>(m * kRowColumns), NAN), expected = c;
    RowDot dot{.a = a.data(), .a_stride = kK, .b = columns.data(), .b_stride = kStride};
    dot.b_dtype = Dtype::bf16;
    dot.c = expected.data();
    dot.m = m;
    dot.k = kK;
    dot.chain = DotChain::dots;
    dot_rows(dot);
    RowPairs product{.a = reinterpret_cast<const uint16_t*>(rows.data()), .a_stride = kK};
    product.b = reinterpret_cast<const uint16_t*>(columns.data());
    product.b_stride = kStride;
    product.c = c.data();
    product.m = m;
    product.k = 64;
    multiply_pairs(product);
    product.a += product.k;
    product.b += product.k;
    product.k = kK - product.k;
    product.sum = RowSum::carry;
    product.fetch = Fetch::next_columns;
    multiply_pairs(product);
    ASSERT_EQ(c, expected) << m;
  }
}

// Attention of the last `q_len` tokens of each text, over a cache of `capacity` rows or, with 0,
// over the keys themselves.
struct CacheCase {
  Dtype dtype = Dtype::f32;
  int64_t head_size = 20, batch = 1, window = 0;
  float softcap = 0;
  bool has_bias = false, has_ends = false;
};

constexpr int64_t kTokens = 200, kHeads = 4, kKvHeads = 2;

// Rows [batch, `rows`, ...] with those of `from`, of kTokens a text, first; the rest is NaN, since
// what nobody wrote must not be read.
std::vector<float> in_cache(const std::vector<float>& from, int64_t batch, int64_t rows) {
  const auto length = static_cast<int64_t>(from.size()) / batch, row = length / kTokens;
  std::vector<float> cache(static_cast<size_t>(batch * rows * row), NAN);
  for (int64_t b = 0; b < batch; ++b)
    std::copy_n(from.begin() + b * length, std::min(length, rows * row),
                cache.begin() + b * rows * row);
  return cache;
}

std::vector<float> attended(const CacheCase& c, int64_t q_len, int64_t capacity) {
  const int64_t q_row = kHeads * c.head_size, k_row = kKvHeads * c.head_size;
  const bool has_cache = capacity > 0;
  const int64_t kv_len = has_cache ? capacity : kTokens;
  const auto q = noise(static_cast<size_t>(c.batch * kTokens * q_row), 1);
  std::vector<float> last;
  for (int64_t b = 0; b < c.batch; ++b) {
    const auto end = q.begin() + (b + 1) * kTokens * q_row;
    last.insert(last.end(), end - q_len * q_row, end);
  }
  const auto rows = stored(last, c.dtype);
  const auto k = stored(
      in_cache(noise(static_cast<size_t>(c.batch * kTokens * k_row), 2), c.batch, kv_len), c.dtype);
  const auto v = stored(
      in_cache(noise(static_cast<size_t>(c.batch * kTokens * k_row), 3), c.batch, kv_len), c.dtype);
  AttentionSpec spec{.batch = c.batch, .q_len = q_len, .kv_len = kv_len, .heads = kHeads};
  spec.kv_heads = kKvHeads;
  spec.head_size = c.head_size;
  spec.window = c.window;
  spec.scale = 0.3f;
  spec.softcap = c.softcap;
  spec.dtype = c.dtype;
  std::vector<float> bias;
  if (c.has_bias) {  // of each query and key of a head
    spec.bias = AttentionBias{.batch = 1, .heads = kHeads, .q_len = q_len};
    const auto whole = noise(kHeads * kTokens * kTokens, 4);
    bias.assign(static_cast<size_t>(kHeads * q_len * kv_len), NAN);
    for (int64_t row = 0; row < kHeads * q_len; ++row) {
      const int64_t from = row / q_len * kTokens + kTokens - q_len + row % q_len;
      std::copy_n(whole.begin() + from * kTokens, kTokens, bias.begin() + row * kv_len);
    }
  }
  std::vector<int32_t> positions, ends;
  for (int64_t row = 0; row < c.batch * q_len; ++row) {
    positions.push_back(static_cast<int32_t>(kTokens - q_len + row % q_len));
    ends.push_back(static_cast<int32_t>(kTokens - 50 - 33 * (row / q_len)));
  }
  if (c.has_ends) {
    spec.mask = AttentionMask::full;
    spec.ranges = KeyRanges::given;
  }
  ThreadPool pool(2);
  const AttentionForward attention(spec, pool.n_threads());
  std::vector<std::byte> o(rows.size());
  std::vector<float> lse(static_cast<size_t>(c.batch * kHeads * q_len), NAN);
  std::vector<std::byte> scratch(attention.scratch_bytes() + 64, std::byte{0xff});
  void* at = scratch.data();
  size_t space = scratch.size();
  attention.launch({.q = rows.data(),
                    .k = k.data(),
                    .v = v.data(),
                    .o = o.data(),
                    .lse = lse.data(),
                    .key_ends = c.has_ends ? ends.data() : nullptr,
                    .positions = has_cache && !c.has_ends ? positions.data() : nullptr,
                    .bias = c.has_bias ? bias.data() : nullptr,
                    .scratch = std::align(64, 1, at, space)},
                   pool);
  // By texts: o of each query, then its lse.
  std::vector<float> all;
  for (int64_t row = 0; row < c.batch * q_len; ++row) {
    for (int64_t i = row * q_row; i < (row + 1) * q_row; ++i) {
      float x = 0;
      if (c.dtype == Dtype::bf16) {
        uint16_t half;
        std::memcpy(&half, o.data() + i * 2, sizeof(half));
        x = f32_from_bf16(half);
      } else {
        std::memcpy(&x, o.data() + i * 4, sizeof(x));
      }
      all.push_back(x);
    }
    for (int64_t h = 0; h < kHeads; ++h)
      all.push_back(lse[static_cast<size_t>((row / q_len * kHeads + h) * q_len + row % q_len)]);
  }
  return all;
}

class AttentionRows : public testing::TestWithParam<CacheCase> {};

TEST_P(AttentionRows, bits_over_a_cache_are_those_of_the_whole_text) {
  const RowSumsScope same(RowSums::same);
  if (!library_sum_order(32).is_known()) GTEST_SKIP() << "the order of sums is not known";
  const CacheCase c = GetParam();
  const std::vector<float> whole = attended(c, kTokens, 0);
  const auto text = static_cast<int64_t>(whole.size()) / c.batch, row = text / kTokens;
  for (const int64_t q_len : {1, 2, 3, 7, 33, 64, 70, 199}) {
    for (const int64_t capacity : {200, 230, 1000}) {
      const std::vector<float> got = attended(c, q_len, capacity);
      for (int64_t b = 0; b < c.batch; ++b) {
        const float* const expected = whole.data() + (b + 1) * text - q_len * row;
        ASSERT_EQ(std::memcmp(got.data() + b * q_len * row, expected,
                              static_cast<size_t>(q_len * row) * 4),
                  0)
            << q_len << " " << capacity << " " << b;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    shapes, AttentionRows,
    testing::Values(CacheCase{}, CacheCase{.window = 50}, CacheCase{.head_size = 32, .batch = 3},
                    CacheCase{.head_size = 72, .softcap = 5},
                    CacheCase{.dtype = Dtype::bf16, .head_size = 64, .batch = 2},
                    CacheCase{.dtype = Dtype::bf16, .head_size = 20, .window = 50},
                    CacheCase{.dtype = Dtype::bf16, .head_size = 64, .has_bias = true},
                    CacheCase{.dtype = Dtype::bf16, .head_size = 32, .batch = 3, .has_ends = true},
                    CacheCase{.head_size = 40, .batch = 2, .has_bias = true, .has_ends = true}));

}  // namespace
}  // namespace octet::cpu
