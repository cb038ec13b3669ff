#include "base/units.h"

#include <fmt/format.h>

namespace octet {

std::string bytes_text(double n_bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (n_bytes >= 1024 && unit < 4) {
    n_bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} bytes", n_bytes)
                   : fmt::format("{:.1f} {}", n_bytes, kUnits[unit]);
}

}  // namespace octet
