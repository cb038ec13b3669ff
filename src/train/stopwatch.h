// Seconds since it was made, and how fast bytes went.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "base/units.h"

namespace octet {

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // "25.1 GiB in 12.34 s, 2.0 GiB/s"
  std::string text(int64_t n_bytes) const {
    const auto bytes = static_cast<double>(n_bytes);
    const double time = seconds();
    return fmt::format("{} in {:.2f} s, {}/s", bytes_text(bytes), time, bytes_text(bytes / time));
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace octet
