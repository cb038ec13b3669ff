// The keys of Philox's rounds, which everything of one parameter shares.
#pragma once

#include "base/philox.h"

namespace octet::cuda {

// The ten rounds' keys.
struct RoundKeys {
  uint32_t lo[10], hi[10];
};
inline RoundKeys round_keys(const RandomStream& random) {
  RoundKeys keys{};
  keys.lo[0] = static_cast<uint32_t>(random.name) ^ random.seed;
  keys.hi[0] = static_cast<uint32_t>(random.name >> 32);
  for (int i = 1; i < 10; ++i) {
    keys.lo[i] = keys.lo[i - 1] + 0x9E3779B9u;
    keys.hi[i] = keys.hi[i - 1] + 0xBB67AE85u;
  }
  return keys;
}

}  // namespace octet::cuda
