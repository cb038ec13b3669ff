// Sums of numbers that are not negative, without rounding: the same bits for any order and any
// grouping of the additions. Source: Kulisch's accumulator, as an array of 64-bit integers that
// each hold 32 bits of the sum and the carries of up to 2^31 additions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "formats/bits.h"

namespace octet {

// Limbs of a sum: multiples of 2^-384 below 2^304, which any sum of 2^40 squares of f32 numbers is.
inline constexpr int kExactLimbs = 22, kExactLowest = -384;

// Parts that a number adds to three limbs, from `limb` on: 32 bits each. It is finite and above 0.
struct ExactParts {
  int limb = 0;
  uint32_t bits[3] = {};
};
OCTET_HOST_DEVICE inline ExactParts exact_parts(double x) {
  int exponent = 0;
  const auto significand = static_cast<uint64_t>(std::frexp(x, &exponent) * 0x1p53);
  const int at = exponent - 53 - kExactLowest, shift = at % 32;
  const uint64_t low = significand << shift;
  const uint64_t high = shift == 0 ? 0 : significand >> (64 - shift);
  return {
      at / 32,
      {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high)}};
}

// The value of kExactLimbs limbs, within an ulp.
OCTET_HOST_DEVICE inline double exact_value(const int64_t* limbs) {
  uint32_t digits[kExactLimbs];
  int64_t carry = 0;
  for (int i = 0; i < kExactLimbs; ++i) {
    const int64_t sum = limbs[i] + carry;
    digits[i] = static_cast<uint32_t>(sum);
    carry = sum >> 32;
  }
  auto result = static_cast<double>(carry);
  for (int i = kExactLimbs; i-- > 0;) result = result * 0x1p32 + static_cast<double>(digits[i]);
  return std::ldexp(result, kExactLowest);
}

class ExactSum {
 public:
  // The limbs, and how many of the numbers were not finite: what ranks send each other.
  using Words = std::array<int64_t, kExactLimbs + 1>;

  void add(double x) {
    if (!std::isfinite(x)) {
      ++words_[kExactLimbs];
      return;
    }
    if (!(x > 0)) return;
    const ExactParts parts = exact_parts(x);
    const auto first = static_cast<size_t>(parts.limb);
    for (size_t i = 0; i < 3; ++i) words_[first + i] += parts.bits[i];
  }
  void add(const Words& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] += other[i];
  }

  const Words& words() const { return words_; }
  bool finite() const { return words_[kExactLimbs] == 0; }
  // Within an ulp; NaN where a number was not finite.
  double value() const { return finite() ? exact_value(words_.data()) : std::nan(""); }

 private:
  Words words_{};
};

}  // namespace octet
