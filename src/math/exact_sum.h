// Sums of numbers that are not negative, without rounding: the same bits for any order and any
// grouping of the additions. Source: Kulisch's accumulator, as an array of 64-bit integers that
// each hold 32 bits of the sum and the carries of up to 2^31 additions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace octet {

class ExactSum {
 public:
  // Multiples of 2^-384 below 2^304: any sum of 2^40 squares of f32 numbers.
  static constexpr int kLimbs = 22, kLowestExponent = -384;
  // The limbs, and how many of the numbers were not finite: what ranks send each other.
  using Words = std::array<int64_t, kLimbs + 1>;

  void add(double x) {
    if (!std::isfinite(x)) {
      ++words_[kLimbs];
      return;
    }
    if (!(x > 0)) return;
    int exponent = 0;
    const auto significand = static_cast<uint64_t>(std::frexp(x, &exponent) * 0x1p53);
    const int at = exponent - 53 - kLowestExponent;
    const unsigned __int128 bits = static_cast<unsigned __int128>(significand) << (at % 32);
    int64_t* const limb = &words_[static_cast<size_t>(at / 32)];
    for (int i = 0; i < 3; ++i) limb[i] += static_cast<int64_t>((bits >> (32 * i)) & 0xFFFFFFFFu);
  }
  void add(const Words& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] += other[i];
  }

  const Words& words() const { return words_; }
  bool finite() const { return words_[kLimbs] == 0; }
  // Within an ulp; NaN where a number was not finite.
  double value() const {
    if (!finite()) return std::nan("");
    std::array<int64_t, kLimbs> limbs;
    int64_t carry = 0;
    for (size_t i = 0; i < limbs.size(); ++i) {
      const int64_t sum = words_[i] + carry;
      limbs[i] = sum & 0xFFFFFFFF;
      carry = sum >> 32;
    }
    double result = static_cast<double>(carry);
    for (size_t i = limbs.size(); i-- > 0;)
      result = result * 0x1p32 + static_cast<double>(limbs[i]);
    return std::ldexp(result, kLowestExponent);
  }

 private:
  Words words_{};
};

}  // namespace octet
