// Philox4x32-10, a counter-based random generator: the same (key, counter) gives the same bits on
// every device, for any order of calls. Source: Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011.
//
// Host and device. A draw is keyed by (hash of the tensor's name, attempted step, micro-batch) and
// counted by the global element index, so recomputed, sharded and resumed runs draw the same bits.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/host_device.h"

namespace octet {

struct PhiloxKey {
  uint32_t lo = 0, hi = 0;
};

struct PhiloxBlock {
  uint32_t word[4];
};

OCTET_HOST_DEVICE inline PhiloxBlock philox(PhiloxKey key, uint64_t counter_lo,
                                            uint64_t counter_hi) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  PhiloxBlock c{{static_cast<uint32_t>(counter_lo), static_cast<uint32_t>(counter_lo >> 32),
                 static_cast<uint32_t>(counter_hi), static_cast<uint32_t>(counter_hi >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMul0) * c.word[0];
    const uint64_t p1 = static_cast<uint64_t>(kMul1) * c.word[2];
    c = PhiloxBlock{
        {static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ key.lo, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ key.hi, static_cast<uint32_t>(p0)}};
    key.lo += kWeyl0;
    key.hi += kWeyl1;
  }
  return c;
}

// FNV-1a, 64 bits: the stable hash of a tensor's name, and of a name that goes on.
OCTET_HOST_DEVICE constexpr uint64_t continue_hash(uint64_t hash, char ch) {
  return (hash ^ static_cast<unsigned char>(ch)) * 0x100000001b3ull;
}
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char ch : name) hash = continue_hash(hash, ch);
  return hash;
}

// Key and counter of one stream of random words; the counter's low word is the element index / 4.
struct RandomStream {
  uint64_t name = 0;         // name_hash of the tensor
  uint32_t seed = 0;         // the run's seed
  uint32_t step = 0;         // attempted step
  uint32_t micro_batch = 0;  // 0 without accumulation

  // 32 random bits for the element with this global index.
  OCTET_HOST_DEVICE uint32_t bits(uint64_t element) const {
    return block(element >> 2).word[element & 3];
  }
  // Uniform in [0, 1) with 24 bits.
  OCTET_HOST_DEVICE float uniform(uint64_t element) const {
    return static_cast<float>(bits(element) >> 8) * 0x1p-24f;
  }
  // The words of elements 4 i to 4 i + 3.
  OCTET_HOST_DEVICE PhiloxBlock block(uint64_t i) const {
    const PhiloxKey key{static_cast<uint32_t>(name) ^ seed, static_cast<uint32_t>(name >> 32)};
    return philox(key, i, (static_cast<uint64_t>(micro_batch) << 32) | step);
  }
  // Standard normal by Box and Muller, in double, rounded once: two elements share no words.
  OCTET_HOST_DEVICE float normal(uint64_t element) const {
    return normal_of(bits(2 * element), bits(2 * element + 1));
  }
  // Normals of elements 0, 1, ...; each block of words is drawn once, for two elements.
  void normals(std::span<float> to) const {
    for (size_t i = 0; i < to.size(); i += 2) {
      const PhiloxBlock words = block(i / 2);
      to[i] = normal_of(words.word[0], words.word[1]);
      if (i + 1 < to.size()) to[i + 1] = normal_of(words.word[2], words.word[3]);
    }
  }
  OCTET_HOST_DEVICE static float normal_of(uint32_t a, uint32_t b) {
    const double u1 = (static_cast<double>(a) + 1.0) * 0x1p-32;
    const double u2 = static_cast<double>(b) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(6.283185307179586 * u2));
  }
};

// The stream of this name whose other keys are in memory: seed, step and micro-batch; nullptr: 0.
OCTET_HOST_DEVICE inline RandomStream drawn_stream(int64_t name, const uint32_t* draw) {
  const auto of = static_cast<uint64_t>(name);
  return draw == nullptr ? RandomStream{of} : RandomStream{of, draw[0], draw[1], draw[2]};
}

}  // namespace octet
