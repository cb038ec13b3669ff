// Arithmetic of sizes that does not wrap. Host and device.
#pragma once

#include <cstdint>

namespace octet {

// ceil(n / d) for d > 0; nothing on the way is larger than n.
constexpr int64_t ceil_div(int64_t n, int64_t d) {
  return n / d + (n % d > 0 ? 1 : 0);
}

}  // namespace octet
