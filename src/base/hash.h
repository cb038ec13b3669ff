// XXH64, a 64-bit checksum at memory speed: it finds damaged files; it is no defence against forged
// ones. Source: the xxHash specification (Collet), "XXH64 algorithm description"; seed 0. Same
// value on every machine, for any cutting of the input into updates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace octet {

class Xxh64 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) {
    update(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  uint64_t digest() const;  // of what came so far; more may follow

 private:
  void consume(const std::byte* stripes, size_t n_stripes);

  static constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ull, kPrime2 = 0xC2B2AE3D27D4EB4Full;
  static constexpr uint64_t kPrime3 = 0x165667B19E3779F9ull, kPrime4 = 0x85EBCA77C2B2AE63ull;
  static constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5ull;

  std::array<uint64_t, 4> lanes_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::array<std::byte, 32> pending_ = {};
  uint64_t n_bytes_ = 0;
};

inline uint64_t xxh64(std::span<const std::byte> bytes) {
  Xxh64 hash;
  hash.update(bytes);
  return hash.digest();
}

}  // namespace octet
