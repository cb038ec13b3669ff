// Arithmetic of sizes that does not wrap. Host and device.
#pragma once

#include <cstdint>

namespace octet {

// ceil(n / d) for d > 0; nothing on the way is larger than n.
constexpr int64_t ceil_div(int64_t n, int64_t d) {
  return n / d + (n % d > 0 ? 1 : 0);
}

// The product of two counts, or -1 where it is above `most`.
constexpr int64_t product_within(int64_t a, int64_t b, int64_t most) {
  return a != 0 && b > most / a ? -1 : a * b;
}

}  // namespace octet
