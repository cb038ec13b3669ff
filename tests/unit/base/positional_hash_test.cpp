#include "base/hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"

namespace octet::base_positional_hash_test {
namespace {

std::vector<std::byte> noise(size_t n) {
  const RandomStream random{.name = name_hash("placed hash")};
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(random.bits(i));
  return bytes;
}

uint64_t hash_of(std::span<const std::byte> bytes) {
  PositionalHash hash;
  hash.update(0, bytes);
  return hash.digest();
}

// The sum by its definition, a word at a time.
uint64_t plain(std::span<const std::byte> bytes) {
  constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1, kBase = 0x9E3779B185EBCA87ull % kPrime;
  unsigned __int128 sum = 0, weight = 1;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint64_t word = 0;
    for (size_t b = i; b < std::min(bytes.size(), i + 4); ++b)
      word |= std::to_integer<uint64_t>(bytes[b]) << 8 * (b - i);
    sum = (sum + weight * word) % kPrime;
    weight = weight * kBase % kPrime;
  }
  return static_cast<uint64_t>(sum);
}

TEST(PositionalHash, is_the_sum_that_its_header_says) {
  for (const size_t n : {0, 1, 3, 4, 5, 255, 256, 257, 1000, 4099})
    EXPECT_EQ(hash_of(noise(n)), plain(noise(n))) << n;
  const std::vector<std::byte> ones(5000, std::byte{0xFF});  // the largest words
  EXPECT_EQ(hash_of(ones), plain(ones));
}

TEST(PositionalHash, of_parts_that_are_cut_anywhere_adds_up) {
  const std::vector<std::byte> bytes = noise(3001);
  const std::span<const std::byte> all = bytes;
  for (size_t first = 0; first < all.size(); first += 97) {
    for (const size_t n : {0, 1, 2, 3, 4, 255, 256, 700}) {
      const size_t end = std::min(all.size(), first + n);
      PositionalHash sum;
      sum.update(end, all.subspan(end));
      sum.update(first, all.subspan(first, end - first));
      PositionalHash before;
      before.update(0, all.first(first));
      sum.add(before.digest());
      ASSERT_EQ(sum.digest(), hash_of(all)) << first << " " << end;
    }
  }
}

TEST(PositionalHash, finds_each_flipped_bit_and_bytes_that_moved) {
  std::vector<std::byte> bytes = noise(600);
  const uint64_t whole = hash_of(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(hash_of(bytes), whole) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 8, bytes.begin() + 256);
  EXPECT_NE(hash_of(bytes), whole);
}

}  // namespace
}  // namespace octet::base_positional_hash_test
