#include "base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace octet {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Word>
uint64_t load(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

// The lanes stay in registers: a loop over them, or over an array, takes four times as long.
void Xxh64::consume(const std::byte* stripe, size_t n_stripes) {
  auto [a, b, c, d] = lanes_;
  const auto round = [](uint64_t lane, const std::byte* word) {
    return std::rotl(lane + load<uint64_t>(word) * kPrime2, 31) * kPrime1;
  };
  for (; n_stripes > 0; --n_stripes, stripe += 32) {
    a = round(a, stripe);
    b = round(b, stripe + 8);
    c = round(c, stripe + 16);
    d = round(d, stripe + 24);
  }
  lanes_ = {a, b, c, d};
}

void Xxh64::update(std::span<const std::byte> bytes) {
  const size_t n_pending = n_bytes_ % 32;
  n_bytes_ += bytes.size();
  if (n_pending != 0) {
    const size_t n = std::min(bytes.size(), 32 - n_pending);
    std::copy_n(bytes.data(), n, pending_.data() + n_pending);
    if (n_pending + n < 32) return;
    consume(pending_.data(), 1);
    bytes = bytes.subspan(n);
  }
  const size_t n_stripes = bytes.size() / 32;
  consume(bytes.data(), n_stripes);
  bytes = bytes.subspan(32 * n_stripes);
  std::copy_n(bytes.data(), bytes.size(), pending_.data());
}

uint64_t Xxh64::digest() const {
  uint64_t hash = kPrime5;
  if (n_bytes_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
           std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) {
      hash = (hash ^ (std::rotl(lane * kPrime2, 31) * kPrime1)) * kPrime1 + kPrime4;
    }
  }
  hash += n_bytes_;
  const std::byte* rest = pending_.data();
  const std::byte* const end = rest + n_bytes_ % 32;
  for (; end - rest >= 8; rest += 8) {
    hash ^= std::rotl(load<uint64_t>(rest) * kPrime2, 31) * kPrime1;
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  if (end - rest >= 4) {
    hash = std::rotl(hash ^ (load<uint32_t>(rest) * kPrime1), 23) * kPrime2 + kPrime3;
    rest += 4;
  }
  for (; rest != end; ++rest)
    hash = std::rotl(hash ^ (load<uint8_t>(rest) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace octet
