#include "data/permutation.h"

#include "base/error.h"
#include "base/philox.h"

namespace octet {
namespace {

constexpr uint64_t kStream = name_hash("data.permutation");
constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch)
    : n_(static_cast<uint64_t>(n)), seed_(seed), epoch_(epoch) {
  CHECK(n >= 1 && n <= (int64_t{1} << 60));
  while ((uint64_t{1} << (2 * half_bits_)) < n_) ++half_bits_;
}

uint64_t Permutation::round_trip(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  const PhiloxKey key{static_cast<uint32_t>(seed_ ^ kStream),
                      static_cast<uint32_t>((seed_ ^ kStream) >> 32)};
  for (uint64_t round = 0; round < kRounds; ++round) {
    const PhiloxBlock block = philox(key, right, epoch_ << 3 | round);
    const uint64_t next = left ^ (block.word[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t index) const {
  CHECK(index >= 0 && static_cast<uint64_t>(index) < n_);
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = round_trip(value);
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

int64_t uniform_index(int64_t n, uint64_t seed, uint64_t stream, uint64_t draw) {
  const PhiloxKey key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  const PhiloxBlock block = philox(key, draw, stream);
  const uint64_t word = static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
  const auto product = static_cast<unsigned __int128>(word) * static_cast<uint64_t>(n);
  return static_cast<int64_t>(product >> 64);
}

}  // namespace octet
