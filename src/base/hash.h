// XXH64 with seed 0, by libxxhash: a 64-bit checksum at memory speed. It finds damaged files; it is
// no defence against forged ones. Same value on every machine, for any cutting of the input into
// updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

struct XXH64_state_s;  // xxhash.h

namespace octet {

class Xxh64 {
 public:
  Xxh64();
  // Hashes a text, or values that lie side by side.
  template <typename Values>
  void update(const Values& values) {
    update_bytes(as_bytes(values));
  }
  // Hashes a number, in as many bytes as its type has.
  template <typename Number>
  void add(Number number) {
    update(std::span(&number, 1));
  }
  // How many values there are, in 8 bytes, before them.
  template <typename Values>
  void update_sized(const Values& values) {
    add(uint64_t{std::size(values)});
    update(values);
  }
  uint64_t digest() const;  // of what came so far; more may follow

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };
  void update_bytes(std::span<const std::byte> bytes);

  std::unique_ptr<XXH64_state_s, Free> state_;
};

uint64_t xxh64(std::span<const std::byte> bytes);

// A 61-bit checksum that parts of a file add up to, whoever has them: h = sum over i of w_i K^i
// modulo p = 2^61 - 1, w_i being the i-th 32-bit little-endian word of the file, whose end is
// filled with zeros. It is linear in the bytes, so that the sums of disjoint parts, cut at any
// byte, add up to that of the whole. Source: polynomial fingerprints, Karp and Rabin 1987. It finds
// damaged files as surely as its 61 bits allow; it is no defence against forged ones.
class PositionalHash {
 public:
  // The bytes from byte `offset` of the file on.
  void update(uint64_t offset, std::span<const std::byte> bytes);
  void add(uint64_t digest);  // of another part
  uint64_t digest() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

}  // namespace octet
