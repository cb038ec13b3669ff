// Sums of products as a card's tensor cores make them, bit for bit.
//
// A factor is s 2^(e - p): s a signed whole significand with p fraction bits, e its exponent; a
// subnormal keeps the lowest normal exponent and lacks the leading one. One instruction adds a
// block of products to the running sum c, which is 0 at first:
//   E  = max over products != 0 of (e_a + e_b), and exponent of c if c != 0  (not normalized),
//        at least kLowestLargest
//   t  = trunc(s_a s_b 2^(e_a + e_b - 2p - E + fraction)), each product by itself, towards zero
//   t0 = trunc(c 2^(fraction - E))
//   c' = (sum of t and t0) 2^(E - fraction), cut to `result` bits behind its leading one
// Sums of 8-bit floats are one such chain over all of k with fast accumulation; promoted, a chain
// each `chain` products whose result is added to a total in f32, to nearest even.
// Source: recorded products of an H100 and an H200 (tests/golden/sums), and the description of
// Khattak and Mikaitis (arXiv 2511.10909, 2025).
//
// Factors: any order in memory, contiguous along k; values exact in the pair's types. A last block
// may be short. A NaN, 0 times infinity, or infinities of both signs give NaN (kSumNan); a sum of
// exactly 0 is +0. Host and device, no order but that of k, no state.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "formats/bits.h"
#include "formats/table.h"

namespace octet {

// Behaviour of the tensor cores of a capability with a pair of types.
struct TensorSums {
  int capability;  // 90: 9.0
  bool fp8;        // 8-bit floats, any pair but E5M2 x E5M2; otherwise `factors` twice
  Dtype factors;
  int fraction_of_factors;  // p, the larger of the pair's; each factor is given with it
  int block;                // products of one instruction
  int fraction, result;     // bits kept of an aligned term, and of the sum
  int chain;                // products that promoted sums add before f32; 0: no such mode
};

inline constexpr TensorSums kTensorSums[] = {
    {90, true, Dtype::e4m3, 3, 32, 13, 13, 128},
    {90, false, Dtype::bf16, 7, 16, 25, 23, 0},
    {90, false, Dtype::fp16, 10, 16, 25, 23, 0},
    {90, false, Dtype::f32, 10, 8, 25, 23, 0},  // factors rounded to TF32
};

// The row for a pair, nullptr where nothing is promised.
constexpr const TensorSums* find_tensor_sums(int capability, Dtype a, Dtype b) {
  for (const TensorSums& row : kTensorSums) {
    const bool is_pair = row.fp8 ? is_fp8(a) && is_fp8(b) && (a != b || a == Dtype::e4m3)
                                 : a == row.factors && b == row.factors;
    if (row.capability == capability && is_pair) return &row;
  }
  return nullptr;
}

inline constexpr uint32_t kSumNan = 0x7FFFFFFFu;
// The bound for sums that are subnormal in f32; what is recorded allows -134 too.
inline constexpr int kLowestLargest = -133;

// A factor: significand with `fraction_of_factors` bits behind the point. Not finite: exponent
// kNotFinite, and the significand is 0 for NaN, else the sign of infinity.
struct SumFactor {
  static constexpr int32_t kNotFinite = INT32_MAX;
  int32_t significand = 0, exponent = 0;
};

// The lowest normal exponent of a type, whose subnormals keep it.
constexpr int lowest_exponent(Dtype dtype) {
  return 1 - (dtype == Dtype::f32 ? 127 : format_row(dtype).bias);
}

OCTET_HOST_DEVICE constexpr SumFactor sum_factor(float value, int lowest, int fraction) {
  if (!is_finite(value)) {
    const int32_t sign = is_nan(value) ? 0 : value < 0 ? -1 : 1;
    return {sign, SumFactor::kNotFinite};
  }
  const uint32_t bits = bits_of(value), magnitude = bits & kF32Magnitude;
  const int biased = static_cast<int>(magnitude >> 23);
  const int exponent = (biased == 0 ? 1 : biased) - 127;
  uint32_t significand = (magnitude & 0x007FFFFFu) | (biased == 0 ? 0 : 0x00800000u);
  const int drop = 23 - fraction + (exponent < lowest ? lowest - exponent : 0);
  significand = drop > 31 ? 0 : significand >> drop;
  const auto s = static_cast<int32_t>(significand);
  return {bits >> 31 != 0 ? -s : s, exponent < lowest ? lowest : exponent};
}

// v 2^left, towards zero.
OCTET_HOST_DEVICE constexpr int64_t shift_to_zero(int64_t v, int left) {
  if (left >= 0) return v * (int64_t{1} << left);
  if (left < -62) return 0;
  return v < 0 ? -(-v >> -left) : v >> -left;
}

// v 2^exponent with `result` bits behind the leading one, towards zero; |v| < 2^62.
OCTET_HOST_DEVICE constexpr float cut_sum(int64_t v, int exponent, int result) {
  if (v == 0) return 0;
  const uint32_t sign = v < 0 ? 0x80000000u : 0;
  auto u = static_cast<uint64_t>(v < 0 ? -v : v);
  int top = 0;
  while (u >> (top + 1) != 0) ++top;
  const int leading = top + exponent;
  if (leading > 127) return float_of(sign | kF32Inf);
  const int kept = leading < -126 ? result + 126 + leading : result;
  if (kept < 0) return float_of(sign);
  u = kept < top ? u >> (top - kept) << (top - kept) : u;
  u = top > 23 ? u >> (top - 23) : u << (23 - top);  // the leading one at bit 23
  const auto significand = static_cast<uint32_t>(u);
  if (leading < -126) return float_of(sign | significand >> (-126 - leading));
  return float_of(sign | static_cast<uint32_t>(leading + 127) << 23 | (significand & 0x007FFFFFu));
}

// Effect of factors that are not finite on a block and the running sum: NaN, infinity, or 0 where
// all are finite.
OCTET_HOST_DEVICE constexpr float special_sum(const SumFactor* a, const SumFactor* b, int n,
                                              float c) {
  bool plus = bits_of(c) == kF32Inf, minus = bits_of(c) == (kF32Inf | 0x80000000u);
  bool is_nan_sum = is_nan(c);
  for (int i = 0; i < n; ++i) {
    const bool special_a = a[i].exponent == SumFactor::kNotFinite;
    const bool special_b = b[i].exponent == SumFactor::kNotFinite;
    if (!special_a && !special_b) continue;
    // A significand of 0 is NaN of one that is not finite, and zero of one that is.
    is_nan_sum |= a[i].significand == 0 || b[i].significand == 0;
    const bool is_negative = (a[i].significand < 0) != (b[i].significand < 0);
    plus |= !is_negative, minus |= is_negative;
  }
  if (is_nan_sum || (plus && minus)) return float_of(kSumNan);
  return plus ? float_of(kF32Inf) : minus ? float_of(kF32Inf | 0x80000000u) : 0;
}

// One instruction: c and n <= rule.block products.
OCTET_HOST_DEVICE constexpr float add_block(const TensorSums& rule, const SumFactor* a,
                                            const SumFactor* b, int n, float c) {
  const float special = special_sum(a, b, n, c);
  if (special != 0) return special;
  constexpr int kNone = INT32_MIN;
  const SumFactor sum = sum_factor(c, -126, 23);
  int largest = sum.significand == 0 ? kNone : sum.exponent;
  for (int i = 0; i < n; ++i) {
    if (a[i].significand == 0 || b[i].significand == 0) continue;
    const int exponent = a[i].exponent + b[i].exponent;
    largest = exponent > largest ? exponent : largest;
  }
  if (largest == kNone) return 0;
  largest = largest < kLowestLargest ? kLowestLargest : largest;
  int64_t total = shift_to_zero(sum.significand, sum.exponent - 23 + rule.fraction - largest);
  for (int i = 0; i < n; ++i) {
    const int64_t product = int64_t{a[i].significand} * b[i].significand;
    if (product == 0) continue;
    total += shift_to_zero(product, a[i].exponent + b[i].exponent - 2 * rule.fraction_of_factors +
                                        rule.fraction - largest);
  }
  return cut_sum(total, largest - rule.fraction, rule.result);
}

enum class SumMode : uint8_t { one_chain, promoted };

// Sum of k products: one chain, or one each rule.chain products, added in f32.
OCTET_HOST_DEVICE constexpr float sum_of_products(const TensorSums& rule, SumMode mode,
                                                  const SumFactor* a, const SumFactor* b,
                                                  int64_t k) {
  const int64_t chain = mode == SumMode::promoted && rule.chain > 0 ? rule.chain : k;
  float total = 0;
  for (int64_t first = 0; first < k; first += chain) {
    const int64_t end = k - first < chain ? k : first + chain;
    float sum = 0;
    for (int64_t i = first; i < end; i += rule.block) {
      const int n = static_cast<int>(end - i < rule.block ? end - i : rule.block);
      sum = add_block(rule, a + i, b + i, n, sum);
    }
    total = chain == k ? sum : total + sum;
  }
  return total;
}

}  // namespace octet
