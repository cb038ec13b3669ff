// Numbers a head for the distance of a query and a key, which are added to scores: T5's relative
// positions. Source: Raffel et al. 2020.
//
//   score[h, q, k] += table[bucket(k - q), h]
// Of n buckets for one direction the first n / 2 are of one distance each; the others are of
// distances that grow by a factor, and the last is also of all from `max_distance` on:
//   bucket(d) = d                                                     d < n / 2 = e
//               e + floor(log(d / e) / log(max_distance / e) (n - e)), at most n - 1
// computed in single precision, as transformers does. Of both directions n is half of the table,
// and keys behind the query have the second half; of keys before the query alone, those behind
// count as 0 away.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nn/blocks.h"

namespace octet {

enum class Distances : uint8_t { both, before };

// Buckets of the distances k - q = first, first + 1, ..., n of them.
std::vector<int64_t> distance_buckets(const ModelSpec& spec, Distances which, int64_t first,
                                      int64_t n);

// [1, heads, length, length], the bias of attention of as many queries and keys. The table is
// `path`.weight, [relative_buckets, heads].
ValueId relative_bias(Blocks& blocks, std::string_view path, Distances which, int64_t length);

// The same of a call over a KV cache, whose queries stand at "positions": [batch, heads, seq, seq],
// a slice of that of all places of the cache (compile/compose.h). Of keys before the query.
ValueId cached_relative_bias(Blocks& blocks, std::string_view path);

}  // namespace octet
