// XXH64 with seed 0, by libxxhash: a 64-bit checksum at memory speed. It finds damaged files; it is
// no defence against forged ones. Same value on every machine, for any cutting of the input into
// updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

struct XXH64_state_s;  // xxhash.h

namespace octet {

class Xxh64 {
 public:
  Xxh64();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) {
    update(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  uint64_t digest() const;  // of what came so far; more may follow

 private:
  struct Free {
    void operator()(XXH64_state_s* state) const;
  };
  std::unique_ptr<XXH64_state_s, Free> state_;
};

uint64_t xxh64(std::span<const std::byte> bytes);

}  // namespace octet
