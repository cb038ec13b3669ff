#include "runtime/known_numbers.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "formats/codec.h"

namespace octet {
namespace {

int number_at(uint64_t place) {
  static const auto numbers = [] {
    std::array<int8_t, kKnownRow> result{};
    uint32_t random = 1;
    for (int8_t& number : result) {
      random = random * 1664525u + 1013904223u;
      number = static_cast<int8_t>(static_cast<int>(random >> 28) - 7);
    }
    return result;
  }();
  return numbers[place % kKnownRow];
}

// Rows are rotated, by another number of elements in each of 2^16.
int64_t first_place(int64_t row) {
  return (7 * row + 3 * (row / kKnownRow)) % kKnownRow;
}

}  // namespace

int known_number(int64_t place, int rank, int pass) {
  return number_at(static_cast<uint64_t>(place + 37 * rank + 101 * pass));
}
int known_addend(int64_t place, int rank, int pass) {
  return number_at(static_cast<uint64_t>(place + 11 + 53 * rank + 17 * pass));
}

uint32_t known_bits(Dtype dtype, float value) {
  if (dtype == Dtype::f32) return std::bit_cast<uint32_t>(value);
  if (dtype == Dtype::bf16) return bf16_from_f32(value);
  if (dtype == Dtype::boolean) return value != 0 ? 1 : 0;
  return encode(dtype, value);
}
float known_value(Dtype dtype, uint32_t bits) {
  if (dtype == Dtype::f32) return std::bit_cast<float>(bits);
  if (dtype == Dtype::bf16) return f32_from_bf16(static_cast<uint16_t>(bits));
  if (dtype == Dtype::boolean) return static_cast<float>(bits);
  return decode(dtype, bits);
}

uint32_t bits_at(const std::byte* from, int64_t index, int64_t width) {
  uint32_t bits = 0;
  std::memcpy(&bits, from + index * width, static_cast<size_t>(width));
  return bits;
}
void put_bits(std::byte* to, int64_t index, int64_t width, uint32_t bits) {
  std::memcpy(to + index * width, &bits, static_cast<size_t>(width));
}

KnownRow::KnownRow(int64_t width, const std::function<uint32_t(int64_t place)>& bits)
    : width_(width), twice_(static_cast<size_t>(2 * kKnownRow * width)) {
  for (int64_t place = 0; place < kKnownRow; ++place) {
    const uint32_t one = bits(place);
    put_bits(twice_.data(), place, width, one);
    put_bits(twice_.data(), place + kKnownRow, width, one);
  }
}
KnownRow::KnownRow(Dtype dtype, const std::function<float(int64_t place)>& value)
    : KnownRow(bytes_of(dtype, 1), [&](int64_t place) { return known_bits(dtype, value(place)); }) {
}

const std::byte* KnownRow::at_row(int64_t row) const {
  return twice_.data() + first_place(row) * width_;
}
void KnownRow::fill(std::byte* to, int64_t first, int64_t count) const {
  for (int64_t i = 0; i < count; i += kKnownRow) {
    const int64_t n = std::min(kKnownRow, count - i);
    std::memcpy(to + i * width_, at_row((first + i) / kKnownRow), static_cast<size_t>(n * width_));
  }
}

int64_t place_of_nan(int64_t n, int pass) {
  if (n < 2) return -1;
  return (n / 5 * (pass + 1) + 3) % n;
}

double known_squares(int64_t n, int rank, int pass) {
  const auto square = [&](int64_t place) {
    const double value = known_number(place, rank, pass);
    return value * value;
  };
  double row = 0, sum = 0;
  for (int64_t place = 0; place < kKnownRow; ++place) row += square(place);
  sum = row * static_cast<double>(n / kKnownRow);
  for (int64_t i = 0; i < n % kKnownRow; ++i) sum += square(first_place(n / kKnownRow) + i);
  return sum;
}

}  // namespace octet
