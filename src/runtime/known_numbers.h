// Numbers that every rank knows of every other: what ranks give a collective to try it with, and
// what it must give back, as bits.
//
// They are whole numbers from -7 to 8, so that sums of few ranks are exact in f32, bf16 and fp16 in
// any order, and each is a number of E4M3. Rows of 256 elements, which no cut between ranks
// divides, are turns of one row, so that they are made and compared by moving bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/dtype.h"
#include "ir/sharding.h"

namespace octet {

inline constexpr int64_t kKnownRow = kShardMultiple;

// Numbers of a rank in a pass, by element of the row that is rotated. The second is of what sums
// begin with.
int known_number(int64_t place, int rank, int pass);
int known_addend(int64_t place, int rank, int pass);

// The bits of numbers of a type; those of NaN.
uint32_t known_bits(Dtype dtype, float value);
float known_value(Dtype dtype, uint32_t bits);

// The row that a tensor is made of: bits by place.
class KnownRow {
 public:
  KnownRow(int64_t width, const std::function<uint32_t(int64_t place)>& bits);
  KnownRow(Dtype dtype, const std::function<float(int64_t place)>& value);
  int64_t width() const { return width_; }
  // The tensor's elements from 256 `row` on.
  const std::byte* at_row(int64_t row) const;
  // That many from `first` on, a multiple of 256.
  void fill(std::byte* to, int64_t first, int64_t count) const;

 private:
  int64_t width_;
  std::vector<std::byte> twice_;
};

// The place where a tensor of n elements differs from the rest; -1: nowhere.
int64_t place_of_nan(int64_t n, int pass);
inline int rank_of_nan(int n_ranks, int pass) {
  return pass % n_ranks;
}

// The sum of squares of the n elements of one rank.
double known_squares(int64_t n, int rank, int pass);

uint32_t bits_at(const std::byte* from, int64_t index, int64_t width);
void put_bits(std::byte* to, int64_t index, int64_t width, uint32_t bits);

}  // namespace octet
