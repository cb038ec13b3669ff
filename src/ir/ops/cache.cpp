// A KV cache: the keys, or the values, of the tokens so far, one row a position.
//   cache: [B*capacity, D]    x: [B*T, D]    positions: i32 [B*T]
// cache_write: the cache with row positions[b*T + t] of batch entry b replaced by x's row b*T + t.
// A row whose position is negative or not below the capacity is dropped; of two at one position
// either may stay.
#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

Results infer_cache_write(const Attrs& attrs, Types in) {
  const auto& a = std::get<CacheAttrs>(attrs);
  const TensorType &cache = in[CacheWrite::cache], &x = in[CacheWrite::x];
  if (a.batch < 1 || a.capacity < 1) {
    fail("cache_write", "expected batch, capacity >= 1, got {}, {}", a.batch, a.capacity);
  }
  need_dims("cache_write", "batch x capacity", {a.batch, a.capacity});
  need_matrix("cache_write", "x", x);
  if (x.shape[0] % a.batch != 0) {
    fail("cache_write", "expected rows of x in {} equal parts, got {}", a.batch, x.shape[0]);
  }
  need_float("cache_write", "cache", cache, {a.batch * a.capacity, x.shape[1]});
  if (cache.dtype != x.dtype) {
    fail("cache_write", "expected x of the cache's dtype, got {} and {}", to_string(x),
         to_string(cache));
  }
  need_int("cache_write", "positions", in[CacheWrite::positions], {x.shape[0]});
  return {moved(cache, cache.shape)};
}

// Truth, over x's shape, of each row behind which another has its position.
ValueId is_written_over(Builder& b, ValueId positions, ValueId x) {
  const Shape of_x = b.shape(x);  // a copy: the graph grows
  const Shape pairs = {of_x[0], of_x[0]};
  const ValueId same =
      b.equal(b.broadcast(positions, pairs, {0}), b.broadcast(positions, pairs, {1}));
  const ValueId is_later = b.less(b.iota(pairs, 0), b.iota(pairs, 1));
  const ValueId zeros = b.fill(pairs, 0);
  const ValueId found = b.select(same, b.select(is_later, b.fill(pairs, 1), zeros), zeros);
  const ValueId any = b.broadcast(b.reduce_max(found, {1}), of_x, {0});
  return b.less(b.fill(of_x, 0), any);
}

// Each batch entry by itself: what is scattered where something was written, else the cache. Of
// rows at one position the last is.
Values decompose_cache_write(Builder& b, const Node& node) {
  const auto& a = std::get<CacheAttrs>(node.attrs);
  const ValueId cache = node.in(CacheWrite::cache), x = node.in(CacheWrite::x);
  const int64_t n = b.shape(x)[0] / a.batch;
  const ScatterAddAttrs rows{.rows = a.capacity};
  Values parts;
  for (int64_t i = 0; i < a.batch; ++i) {
    const ValueId at = b.slice(node.in(CacheWrite::positions), 0, i * n, n);
    const ValueId old = b.slice(cache, 0, i * a.capacity, a.capacity);
    const ValueId given = b.slice(x, 0, i * n, n);
    const ValueId is_over = is_written_over(b, at, given), none = b.fill_like(given, 0);
    const ValueId added = b.select(is_over, none, given);
    const ValueId ones = b.select(is_over, none, b.fill_like(given, 1));
    const ValueId count = b.emit1(OpCode::scatter_add, rows, {ones, at});
    const ValueId written = b.less(b.fill_like(count, 0), count);
    parts.push_back(b.select(written, b.emit1(OpCode::scatter_add, rows, {added, at}), old));
  }
  return {parts.size() == 1 ? parts[0] : b.concatenate(parts, 0)};
}

}  // namespace

constinit const OpDef defs::cache_write = define(
    OpCode::cache_write,
    {.infer = infer_cache_write, .decompose = decompose_cache_write, .inplace = kInplaceFirst});

}  // namespace octet::ops
