// src/math/tensor_sums.h and tensor_epilogue.h against recorded.npz: 16-bit and TF32 factors,
// scales of blocks and rows, addends, splits and mma.sync of an H100.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "data/npz.h"
#include "formats/codec.h"
#include "math/tensor_epilogue.h"
#include "math/tensor_sums.h"

namespace octet::sums_recorded_test {
namespace {

// Products of recorded.npz, as make_recorded.py says.
struct Recorded {
  NumpyArrays arrays = read_npz(posix_files(), OCTET_SOURCE_DIR "/tests/golden/sums/recorded.npz");

  const NumpyArray& at(const std::string& name) const { return arrays.at(name); }
  bool has(const std::string& name) const { return arrays.contains(name); }
  std::vector<float> floats(const std::string& name, Dtype dtype) const {
    std::vector<float> all;
    if (dtype == Dtype::f32) return at(name).values<float>();
    if (dtype_bytes(dtype) == 2)
      for (const uint16_t code : at(name).values<uint16_t>()) all.push_back(decode(dtype, code));
    else
      for (const uint8_t code : at(name).values<uint8_t>()) all.push_back(decode(dtype, code));
    return all;
  }
  std::vector<SumFactor> factors(const std::string& name, Dtype dtype, int fraction) const {
    std::vector<SumFactor> all;
    for (const float x : floats(name, dtype))
      all.push_back(sum_factor(x, lowest_exponent(dtype), fraction));
    return all;
  }
};

// y[i, j] of rows a_i and b_j.
using Element = std::function<float(const SumFactor* a, const SumFactor* b, int64_t i, int64_t j)>;

void expect_recorded(const Recorded& recorded, const std::string& name, Dtype a_type, Dtype b_type,
                     Dtype y_type, const Element& element) {
  const TensorSums& rule = *find_tensor_sums(90, a_type, b_type);
  const auto a = recorded.factors(name + "_a", a_type, rule.fraction_of_factors);
  const auto b = recorded.factors(name + "_b", b_type, rule.fraction_of_factors);
  const int64_t m = recorded.at(name + "_a").shape[0], n = recorded.at(name + "_b").shape[0];
  const int64_t k = recorded.at(name + "_a").shape[1];
  const auto want = recorded.floats(name + "_y", y_type);
  int64_t equal = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float y = element(a.data() + i * k, b.data() + j * k, i, j);
      const float stored = y_type == Dtype::bf16 ? decode(Dtype::bf16, encode(Dtype::bf16, y)) : y;
      equal += bits_of(stored) == bits_of(want[static_cast<size_t>(i * n + j)]);
    }
  }
  EXPECT_EQ(equal, m * n) << name;
}

struct PlainCase {
  const char* name;
  Dtype factors;
};
constexpr PlainCase kPlainCases[] = {
    {"bf16_tiny_16", Dtype::bf16}, {"bf16_huge_32", Dtype::bf16}, {"bf16_special_64", Dtype::bf16},
    {"fp16_any_32", Dtype::fp16},  {"f32_any_16", Dtype::f32},    {"fp16_normal_256", Dtype::fp16},
    {"f32_any_256", Dtype::f32},
};

TEST(TensorSums, of_16_bits_and_tf32_overflow_underflow_and_carry_nan_as_recorded) {
  const Recorded recorded;
  for (const PlainCase& c : kPlainCases) {
    const TensorSums& rule = *find_tensor_sums(90, c.factors, c.factors);
    const int64_t k = recorded.at(std::string(c.name) + "_a").shape[1];
    expect_recorded(recorded, c.name, c.factors, c.factors, Dtype::f32,
                    [&](const SumFactor* a, const SumFactor* b, int64_t, int64_t) {
                      return sum_of_products(rule, SumMode::one_chain, a, b, k);
                    });
  }
}

struct BlockCase {
  const char* name;
  Dtype a;
  BlockPair pair;
};
constexpr BlockCase kBlockCases[] = {
    {"line_square_e4m3_e4m3_256_any_f32", Dtype::e4m3, BlockPair::line_and_square},
    {"square_line_e4m3_e4m3_256_any_f32", Dtype::e4m3, BlockPair::line_and_square},
    {"line_square_e5m2_e4m3_256_any_f32", Dtype::e5m2, BlockPair::line_and_square},
    {"line_square_c", Dtype::e4m3, BlockPair::line_and_square},
    {"line_line_e4m3_e4m3_256_any_f32", Dtype::e4m3, BlockPair::lines},
    {"line_line_ragged", Dtype::e4m3, BlockPair::lines},
};

TEST(TensorEpilogue, scales_of_blocks_multiply_each_128_products) {
  const Recorded recorded;
  for (const BlockCase& c : kBlockCases) {
    const std::string name = c.name;
    const TensorSums& rule = *find_tensor_sums(90, c.a, Dtype::e4m3);
    const int64_t k = recorded.at(name + "_a").shape[1], blocks = (k + 127) / 128;
    const int64_t n = recorded.at(name + "_b").shape[0];
    const auto scale_a = recorded.floats(name + "_sa", Dtype::f32);
    const auto scale_b = recorded.floats(name + "_sb", Dtype::f32);
    const bool adds = recorded.has(name + "_c");
    const auto addend = adds ? recorded.floats(name + "_c", Dtype::bf16) : std::vector<float>();
    expect_recorded(recorded, name, c.a, Dtype::e4m3, adds ? Dtype::bf16 : Dtype::f32,
                    [&](const SumFactor* a, const SumFactor* b, int64_t i, int64_t j) {
                      float total = 0;
                      for (int64_t at = 0; at < blocks; ++at) {
                        const float sum =
                            sum_of_products(rule, SumMode::one_chain, a + 128 * at, b + 128 * at,
                                            std::min<int64_t>(128, k - 128 * at));
                        total = add_scaled_block(c.pair, total, sum,
                                                 scale_a[static_cast<size_t>(i * blocks + at)],
                                                 scale_b[static_cast<size_t>(j * blocks + at)]);
                      }
                      return adds ? total + addend[static_cast<size_t>(i * n + j)] : total;
                    });
  }
}

TEST(TensorEpilogue, scales_by_row_multiply_b_first) {
  const Recorded recorded;
  for (const std::string name : {"rows_f32_fast", "rows_f32_slow"}) {
    const TensorSums& rule = *find_tensor_sums(90, Dtype::e4m3, Dtype::e4m3);
    const auto scale_a = recorded.floats(name + "_sa", Dtype::f32);
    const auto scale_b = recorded.floats(name + "_sb", Dtype::f32);
    const SumMode mode = name.ends_with("fast") ? SumMode::one_chain : SumMode::promoted;
    const int64_t k = recorded.at(name + "_a").shape[1];
    expect_recorded(recorded, name, Dtype::e4m3, Dtype::e4m3, Dtype::f32,
                    [&](const SumFactor* a, const SumFactor* b, int64_t i, int64_t j) {
                      return scaled_by_rows(sum_of_products(rule, mode, a, b, k),
                                            scale_a[static_cast<size_t>(i)],
                                            scale_b[static_cast<size_t>(j)]);
                    });
  }
}

struct AddendCase {
  const char* name;
  Dtype factors, y;
  SumMode mode;
  float alpha, beta;
  bool in_place, is_row;
};
constexpr float kAlpha = 0.3f * 1.7f;
constexpr AddendCase kAddendCases[] = {
    {"fp8_1_slow", Dtype::e4m3, Dtype::bf16, SumMode::promoted, kAlpha, 1, true, false},
    {"fp8_2_slow", Dtype::e4m3, Dtype::f32, SumMode::promoted, kAlpha, 1, false, false},
    {"fp8_3_fast", Dtype::e4m3, Dtype::f32, SumMode::one_chain, kAlpha, 1, true, false},
    {"fp8_6_fast", Dtype::e4m3, Dtype::bf16, SumMode::one_chain, kAlpha, 1, false, true},
    {"fp8_9_fast", Dtype::e4m3, Dtype::f32, SumMode::one_chain, kAlpha, 0.37f, false, false},
    {"bf16_epilogue_2", Dtype::bf16, Dtype::bf16, SumMode::one_chain, 1, 1, true, false},
    {"bf16_epilogue_6", Dtype::bf16, Dtype::f32, SumMode::one_chain, 0.3f, 1, false, false},
};

TEST(TensorEpilogue, an_addend_is_added_before_rounding_unless_it_lies_in_y) {
  const Recorded recorded;
  for (const AddendCase& c : kAddendCases) {
    const std::string name = c.name;
    const TensorSums& rule = *find_tensor_sums(90, c.factors, c.factors);
    const int64_t k = recorded.at(name + "_a").shape[1], n = recorded.at(name + "_b").shape[0];
    const auto addend = recorded.floats(name + "_c", c.y);
    expect_recorded(recorded, name, c.factors, c.factors, c.y,
                    [&](const SumFactor* a, const SumFactor* b, int64_t i, int64_t j) {
                      const float sum = sum_of_products(rule, c.mode, a, b, k);
                      const float add =
                          c.beta * addend[static_cast<size_t>(c.is_row ? j : i * n + j)];
                      if (!c.in_place) return scaled_sum(c.alpha, sum, add);
                      const float y = c.alpha * sum;
                      return (c.y == Dtype::bf16 ? decode(c.y, encode(c.y, y)) : y) + add;
                    });
  }
}

// FP8 products of an H200 (torch 2.11, cuBLASLt 13) with scales that make alpha sum nearly the
// bias, BF16 results: rows of 128 x 256 x 128, one chain, and of 2048 x 256 x 256, promoted.
struct BiasCase {
  float alpha, sum, bias, y;
};
constexpr BiasCase kBiasCases[] = {
    {0x1.fed41p-1f, -0x1.b5p+13f, 0x1.b4p+13f, 0.0f},
    {0x1.ff62a8p-1f, -0x1.1e58p+14f, 0x1.1ep+14f, 0.0f},
    {0x1.0049aap+0f, 0x1.4dap+15f, -0x1.4ep+15f, 0.0f},
    {0x1.003b96p+0f, 0x1.57bp+14f, -0x1.58p+14f, -0x1p-9f},
    {0x1.0021dep+0f, -0x1.e3cp+15f, 0x1.e4p+15f, 0.0f},
    {0x1.0060bcp+0f, 0x1.4585p+24f, -0x1.46p+24f, 0.0f},
    {0x1.ffbc6cp-1f, 0x1.a838p+22f, -0x1.a8p+22f, 0x1p-1f},
    {0x1.009408p+0f, 0x1.9f1p+22f, -0x1.ap+22f, 0x1p-1f},
};

TEST(TensorEpilogue, a_bias_is_added_to_the_rounded_product) {
  for (const BiasCase& c : kBiasCases) {
    const auto rounded = [](float x) { return decode(Dtype::bf16, encode(Dtype::bf16, x)); };
    EXPECT_EQ(rounded(biased_sum(c.alpha, c.sum, c.bias)), c.y) << c.sum;
    EXPECT_NE(rounded(scaled_sum(c.alpha, c.sum, c.bias)), c.y) << c.sum;
  }
}

TEST(TensorSums, of_a_split_product_are_added_in_f32_part_by_part) {
  const Recorded recorded;
  const TensorSums& rule = *find_tensor_sums(90, Dtype::e4m3, Dtype::e4m3);
  constexpr int64_t kParts = 3, kPart = (4096 / 128 + kParts - 1) / kParts * 128;
  expect_recorded(recorded, "few_16_16_4096_f32_fast", Dtype::e4m3, Dtype::e4m3, Dtype::f32,
                  [&](const SumFactor* a, const SumFactor* b, int64_t, int64_t) {
                    float sum = 0;
                    for (int64_t at = 0; at < 4096; at += kPart)
                      sum += sum_of_products(rule, SumMode::one_chain, a + at, b + at,
                                             std::min(kPart, 4096 - at));
                    return sum;
                  });
}

// One instruction after another on the same f32 sums c; of FP8 as FP16, products 0, 1, 4, 5, ..
// and then 2, 3, 6, 7, .., from 0, and their sum is added to c.
TEST(TensorSums, of_mma_sync_are_those_of_16_bits) {
  const Recorded recorded;
  struct Kind {
    const char* name;
    Dtype a, b, as;
    int64_t step;
  };
  constexpr Kind kKinds[] = {
      {"mma_e4m3_e4m3_any_2_c", Dtype::e4m3, Dtype::e4m3, Dtype::fp16, 32},
      {"mma_e5m2_e4m3_mean_2_c", Dtype::e5m2, Dtype::e4m3, Dtype::fp16, 32},
      {"mma_bf16_bf16_any_2_c", Dtype::bf16, Dtype::bf16, Dtype::bf16, 16},
      {"mma_f32_f32_any_2_c", Dtype::f32, Dtype::f32, Dtype::f32, 8},
  };
  for (const Kind& c : kKinds) {
    const TensorSums& rule = *find_tensor_sums(90, c.as, c.as);
    const std::string name = c.name;
    const auto fraction = rule.fraction_of_factors;
    const auto values = recorded.floats(name + "_c", Dtype::f32);
    const auto want = recorded.floats(name + "_y", Dtype::f32);
    std::vector<SumFactor> a, b;
    for (const float x : recorded.floats(name + "_a", c.a))
      a.push_back(sum_factor(x, lowest_exponent(c.as), fraction));
    for (const float x : recorded.floats(name + "_b", c.b))
      b.push_back(sum_factor(x, lowest_exponent(c.as), fraction));
    const int64_t k = 2 * c.step;
    int64_t equal = 0;
    for (int64_t i = 0; i < 16 * 8; ++i) {
      float sum = values[static_cast<size_t>(i)];
      const SumFactor *row = a.data() + i / 8 * k, *col = b.data() + i % 8 * k;
      for (int64_t at = 0; at < k; at += c.step) {
        if (c.as != Dtype::fp16) {
          sum = add_block(rule, row + at, col + at, static_cast<int>(c.step), sum);
          continue;
        }
        float part = 0;
        for (const int64_t half : {0, 2}) {
          std::vector<SumFactor> x, y;
          for (int64_t j = at; j < at + c.step; ++j)
            if (j % 4 == half || j % 4 == half + 1) x.push_back(row[j]), y.push_back(col[j]);
          part = add_block(rule, x.data(), y.data(), 16, part);
        }
        sum += part;
      }
      equal += bits_of(sum) == bits_of(want[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(equal, 16 * 8) << name;
  }
}

}  // namespace
}  // namespace octet::sums_recorded_test
