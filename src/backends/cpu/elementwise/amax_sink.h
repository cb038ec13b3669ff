// The amax of what a kernel stores, span by span while it is still in the cache: bit for bit what
// reduce.h's amax gives of the whole. Any threads, in any order: the same bits, for a maximum has
// no order.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>

#include "backends/cpu/elementwise/quantized_matrix.h"

namespace octet::cpu {

class AmaxSink {
 public:
  void add(In x, int64_t n) {
    const float amax = signed_amax(x, n);
    if (std::signbit(amax)) nonfinite_.store(true, std::memory_order_relaxed);
    const auto bits = std::bit_cast<uint32_t>(std::abs(amax));
    uint32_t seen = top_.load(std::memory_order_relaxed);
    while (seen < bits && !top_.compare_exchange_weak(seen, bits, std::memory_order_relaxed)) {
    }
  }
  // After the pool has joined.
  float value() const { return std::bit_cast<float>(top_.load(std::memory_order_relaxed)); }
  bool nonfinite() const { return nonfinite_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> top_ = 0;  // the bits of a magnitude are in its order
  std::atomic<bool> nonfinite_ = false;
};

}  // namespace octet::cpu
