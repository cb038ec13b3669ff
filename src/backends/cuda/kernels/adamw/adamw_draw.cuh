// The words of stochastic weights (math/adamw.h, base/philox.h), four at a time: the same bits with
// what every block of one step shares made once.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_keys.h"

namespace octet::cuda {

inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;

// What the first rounds make of the counter's three upper words, which a launch has in common.
struct DrawShared {
  uint32_t second_lo, second_hi, third_hi;  // terms of the second and third round
};
__device__ __forceinline__ DrawShared draw_shared(const RoundKeys& keys, uint32_t upper_counter,
                                                  uint32_t step) {
  const uint64_t first = static_cast<uint64_t>(kPhiloxMul1) * step;
  const uint32_t word = static_cast<uint32_t>(first >> 32) ^ upper_counter ^ keys.lo[0];
  const uint64_t second = static_cast<uint64_t>(kPhiloxMul0) * word;
  return {.second_lo = static_cast<uint32_t>(first) ^ keys.lo[1],
          .second_hi = static_cast<uint32_t>(second >> 32) ^ keys.hi[1],
          .third_hi = static_cast<uint32_t>(second) ^ keys.hi[2]};
}

// philox of {counter, upper_counter, step, 0}.
__device__ __forceinline__ PhiloxBlock draw_block(const RoundKeys& keys, const DrawShared& shared,
                                                  uint32_t counter) {
  const uint64_t first = static_cast<uint64_t>(kPhiloxMul0) * counter;
  const uint64_t second =
      static_cast<uint64_t>(kPhiloxMul1) * (static_cast<uint32_t>(first >> 32) ^ keys.hi[0]);
  uint32_t a = static_cast<uint32_t>(second >> 32) ^ shared.second_lo;
  uint32_t b = static_cast<uint32_t>(second);
  uint32_t c = static_cast<uint32_t>(first) ^ shared.second_hi;
  uint32_t d = 0;
#pragma unroll
  for (int round = 2; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMul0) * a;
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMul1) * c;
    a = static_cast<uint32_t>(p1 >> 32) ^ b ^ keys.lo[round];
    c = static_cast<uint32_t>(p0 >> 32) ^ (round == 2 ? shared.third_hi : d ^ keys.hi[round]);
    b = static_cast<uint32_t>(p1);
    d = static_cast<uint32_t>(p0);
  }
  return {{a, b, c, d}};
}

}  // namespace octet::cuda
