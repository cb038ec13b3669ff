// Pictures that a small network learns in a few steps.
#pragma once

#include <string>

#include "base/philox.h"

namespace octet::test {

// CIFAR-10's records of three classes: a bright third of the picture, under noise.
inline std::string bright_records(int n, const char* name) {
  const RandomStream random{.name = name_hash(name)};
  std::string bytes;
  uint64_t at = 0;
  for (int i = 0; i < n; ++i) {
    bytes += static_cast<char>(i % 3);
    for (int value = 0; value < 3 * 32 * 32; ++value) {
      const bool is_bright = value % 32 / 11 == i % 3;
      bytes += static_cast<char>((is_bright ? 160 : 60) + random.bits(at++) % 80);
    }
  }
  return bytes;
}

}  // namespace octet::test
