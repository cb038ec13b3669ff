// A keyed permutation of [0, n) by index, in constant memory: a Feistel network over the next power
// of 4, walked along its cycle until it falls below n (4 tries at most on average). Source: Black
// and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002; the round function is Philox.
#pragma once

#include <cstdint>

namespace octet {

class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t round_trip(uint64_t value) const;

  uint64_t n_, seed_, epoch_;
  int half_bits_ = 1;
};

// The draw-th of independent draws that are uniform over [0, n), to within 2^-20 for n of a
// trillion: the high half of a Philox word, of this seed and stream, times n.
int64_t uniform_index(int64_t n, uint64_t seed, uint64_t stream, uint64_t draw);

}  // namespace octet
