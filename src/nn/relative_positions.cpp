#include "nn/relative_positions.h"

#include <algorithm>
#include <cmath>

namespace octet {
namespace {

// Bucket of a distance d in one direction; d is not negative.
int64_t bucket_of(int64_t d, int64_t n, int64_t max_distance) {
  const int64_t n_exact = n / 2;
  if (d < n_exact) return d;
  const auto exact = static_cast<double>(n_exact);
  const auto growth = static_cast<float>(std::log(static_cast<double>(max_distance) / exact));
  const float steps = std::log(static_cast<float>(d) / static_cast<float>(n_exact)) / growth *
                      static_cast<float>(n - n_exact);
  // A distance beyond all that are told apart may be no number of an integer's.
  if (steps >= static_cast<float>(n - n_exact)) return n - 1;
  return std::min(n_exact + static_cast<int64_t>(steps), n - 1);
}

// Constants of a graph: pieces of 0, 1, 2, ..., each rising or the same value repeated.
ValueId constants(Builder& b, const std::vector<int64_t>& values) {
  const ValueId counted = b.iota({std::ranges::max(values) + 1}, 0);
  ValueIds pieces;
  for (size_t at = 0; at < values.size();) {
    size_t end = at + 1;
    const auto goes_on = [&](int64_t step) {
      return end < values.size() && values[end] == values[end - 1] + step;
    };
    const int64_t step = goes_on(0) ? 0 : 1;
    while (goes_on(step)) ++end;
    const auto n = static_cast<int64_t>(end - at);
    const ValueId piece = b.slice(counted, 0, values[at], step == 0 ? 1 : n);
    pieces.push_back(step == 0 ? b.broadcast(b.reshape(piece, {}), {n}, {}) : piece);
    at = end;
  }
  return pieces.size() == 1 ? pieces.front() : b.concatenate(pieces, 0);
}

// y[r, i, j] = x[r, n + d] of the distance d = j - i: [rows, 2 n] -> [rows, n, n]. Each row is
// the one above it shifted by one, which all rows behind each other are when read as one shorter.
ValueId by_distance(Builder& b, ValueId x) {
  const Shape shape = b.shape(x);
  const int64_t rows = shape[0], n = shape[1] / 2, width = 2 * n;
  const ValueId repeated = b.reshape(b.broadcast(x, {rows, n, width}, {0, 2}), {rows, n * width});
  const ValueId shifted = b.reshape(b.slice(repeated, 1, n, n * (width - 1)), {rows, n, width - 1});
  return b.slice(shifted, 2, 0, n);
}

// The buckets of the distances -n, ..., n - 1.
ValueId bucket_ids(Blocks& blocks, Distances which, int64_t n) {
  return constants(blocks.builder(), distance_buckets(blocks.spec(), which, -n, 2 * n));
}

ValueId looked_up(Blocks& blocks, std::string_view path, ValueId ids) {
  const ModelSpec& spec = blocks.spec();
  return blocks.embedding_of(path, ids,
                             {.n = spec.relative_buckets,
                              .width = spec.heads,
                              .std = 1 / std::sqrt(static_cast<double>(spec.hidden))});
}

}  // namespace

std::vector<int64_t> distance_buckets(const ModelSpec& spec, Distances which, int64_t first,
                                      int64_t n) {
  const bool is_both = which == Distances::both;
  const int64_t n_buckets = is_both ? spec.relative_buckets / 2 : spec.relative_buckets;
  std::vector<int64_t> buckets(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t distance = first + i;
    const int64_t away = is_both ? std::abs(distance) : std::max<int64_t>(-distance, 0);
    buckets[static_cast<size_t>(i)] = bucket_of(away, n_buckets, spec.relative_distance) +
                                      (is_both && distance > 0 ? n_buckets : 0);
  }
  return buckets;
}

ValueId relative_bias(Blocks& blocks, std::string_view path, Distances which, int64_t length) {
  blocks.module(path);
  Builder& b = blocks.builder();
  const ValueId of_distances = looked_up(blocks, path, bucket_ids(blocks, which, length));
  const ValueId bias = by_distance(b, b.transpose(of_distances, {1, 0}));
  return b.reshape(bias, {1, blocks.spec().heads, length, length});
}

ValueId cached_relative_bias(Blocks& blocks, std::string_view path) {
  const BatchSize& size = blocks.size();
  const int64_t n = size.cache, heads = blocks.spec().heads;
  const ValueId of_places = relative_bias(blocks, path, Distances::before, n);
  Builder& b = blocks.builder();
  // A row for each place of a query: what its heads add to all keys.
  const ValueId rows = b.reshape(b.transpose(of_places, {0, 2, 1, 3}), {n, heads * n});
  const ValueId of_queries = b.binary(OpCode::embedding, rows, blocks.input("positions"));
  const ValueId bias =
      b.transpose(b.reshape(of_queries, {size.batch, size.seq, heads, n}), {0, 2, 1, 3});
  return size.seq == n ? bias : b.slice(bias, 3, 0, size.seq);
}

}  // namespace octet
