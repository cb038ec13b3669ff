#include "base/hash.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

namespace octet {

void Xxh64::Free::operator()(XXH64_state_s* state) const {
  XXH64_freeState(state);
}

Xxh64::Xxh64() : state_(XXH64_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH64_reset(state_.get(), 0);
}

void Xxh64::update_bytes(std::span<const std::byte> bytes) {
  // An empty span may have no address, which the library takes for an error.
  if (!bytes.empty()) XXH64_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t Xxh64::digest() const {
  return XXH64_digest(state_.get());
}

uint64_t xxh64(std::span<const std::byte> bytes) {
  return XXH64(bytes.data(), bytes.size(), 0);
}

namespace {

static_assert(std::endian::native == std::endian::little);

using Wide = unsigned __int128;

constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
constexpr uint64_t kBase = 0x9E3779B185EBCA87ull % kPrime;
constexpr size_t kWords = 64;  // of a block, whose products are added before they are reduced
constexpr size_t kBlock = kWords * sizeof(uint32_t);

constexpr uint64_t reduce(Wide value) {
  const Wide folded = (value & kPrime) + (value >> 61);
  const auto once = static_cast<uint64_t>((folded & kPrime) + (folded >> 61));
  return once >= kPrime ? once - kPrime : once;
}
constexpr uint64_t times(uint64_t a, uint64_t b) {
  return reduce(Wide{a} * b);
}
constexpr uint64_t plus(uint64_t a, uint64_t b) {
  return reduce(Wide{a} + b);
}

// K^0 to K^kWords.
constexpr std::array<uint64_t, kWords + 1> kPowers = [] {
  std::array<uint64_t, kWords + 1> powers{1};
  for (size_t i = 1; i <= kWords; ++i) powers[i] = times(powers[i - 1], kBase);
  return powers;
}();

uint64_t power(uint64_t exponent) {
  uint64_t result = 1;
  for (uint64_t square = kBase; exponent > 0; exponent >>= 1, square = times(square, square)) {
    if ((exponent & 1) != 0) result = times(result, square);
  }
  return result;
}

// A product has at most 93 bits, and their sum at most 99.
uint64_t block_sum(const std::byte* block) {
  std::array<uint32_t, kWords> words;
  std::memcpy(words.data(), block, kBlock);
  Wide sum = 0;
  for (size_t i = 0; i < kWords; ++i) sum += Wide{words[i]} * kPowers[i];
  return reduce(sum);
}

}  // namespace

void PositionalHash::update(uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  uint64_t weight = power(offset / sizeof(uint32_t));
  // The first block begins with the zeros that stand for the bytes before in its first word.
  size_t lead = offset % sizeof(uint32_t);
  std::array<std::byte, kBlock> padded;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kBlock - lead);
    const std::byte* block = bytes.data();
    if (n < kBlock) {
      padded.fill(std::byte{});
      std::copy_n(bytes.data(), n, padded.data() + lead);
      block = padded.data();
    }
    sum_ = plus(sum_, times(block_sum(block), weight));
    weight = times(weight, kPowers[kWords]);
    bytes = bytes.subspan(n);
    lead = 0;
  }
}

void PositionalHash::add(uint64_t digest) {
  sum_ = plus(sum_, digest);
}

}  // namespace octet
