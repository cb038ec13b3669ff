// How a tensor is cut among ranks. Source: Rajbhandari et al. 2020 (ZeRO).
//
// The tensor of n elements, flattened, is cut in D runs of s = ceil(ceil(n / 256) / D) * 256
// elements. Every rank's shard is a vector of s elements; those past the n-th are zeros, and no
// file holds them. Cuts are multiples of 256, so that no group of a quantized moment (at most 256
// elements, a power of two) lies on two ranks, and cutting anew for another D only copies bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/integer.h"

namespace octet {

inline constexpr int64_t kShardMultiple = 256;

constexpr int64_t shard_elems(int64_t n, int64_t ranks) {
  return ceil_div(ceil_div(n, kShardMultiple), ranks) * kShardMultiple;
}

// The exact sum of squares of a shard (math/exact_sum.h), as a tensor: of n elements
// square_parts(n) rows of kSquareWords 32-bit words, each the words of one sum, to be added.
inline constexpr int64_t kSquareWords = 46;
constexpr int64_t square_parts(int64_t n) {
  return std::clamp<int64_t>(ceil_div(n, 8 * kShardMultiple), 1, 512);
}

struct ElementRange {
  int64_t first = 0, count = 0;
  bool operator==(const ElementRange&) const = default;
};

// Part of n elements that lies in this rank's run, runs being `shard` long.
constexpr ElementRange shard_range(int64_t n, int64_t shard, int64_t rank) {
  const int64_t first = std::min(n, rank * shard);
  return {first, std::min(shard, n - first)};
}

}  // namespace octet
