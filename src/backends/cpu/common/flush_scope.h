// Denormal operands and results of this thread are zeros while one lives.
#pragma once

#include <xmmintrin.h>

namespace octet::cpu {

class FlushScope {
 public:
  FlushScope() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushOperands); }
  ~FlushScope() { _mm_setcsr(before_); }
  FlushScope(const FlushScope&) = delete;
  FlushScope& operator=(const FlushScope&) = delete;

 private:
  static constexpr unsigned kFlushResults = 0x8000, kFlushOperands = 0x0040;
  unsigned before_;
};

}  // namespace octet::cpu
