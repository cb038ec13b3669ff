#include "optim/rules/deal.h"

#include "base/integer.h"
#include "ir/sharding.h"

namespace octet {
namespace {

// Elements [start, start + n) along an axis.
ValueId part(Builder& b, ValueId x, size_t axis, int64_t start, int64_t n) {
  const size_t rank = b.shape(x).size();
  SliceAttrs attrs{.start = Shape(rank, 0), .limit = b.shape(x), .stride = Shape(rank, 1)};
  if (n == attrs.limit[axis]) return x;
  attrs.start[axis] = start, attrs.limit[axis] = start + n;
  return b.emit1(OpCode::slice, attrs, {x});
}

// `size` elements of a vector from `start` on: a view where it is made of such parts, in whole
// groups of kShardMultiple elements, else a copy.
ValueId run_of(Builder& b, ValueId x, int64_t start, int64_t size) {
  const int64_t n = b.type(x).n_elems();
  const bool is_part = size % kShardMultiple == 0 && n % size == 0 && start % size == 0;
  if (!is_part || n == size) return part(b, x, 0, start, size);
  return b.emit1(OpCode::take_shard, ShardAttrs{.ranks = n / size, .rank = start / size}, {x});
}

// The ranks' x, one behind the other, each in whole groups of kShardMultiple elements.
ValueId gather(Builder& b, ValueId x, int64_t ranks) {
  const int64_t n = b.type(x).n_elems(), shard = shard_elems(n, 1);
  x = b.reshape(x, {n});
  if (shard != n) x = b.emit1(OpCode::pad, PadAttrs{{0}, {shard - n}, {0}}, {x});
  const CollectiveAttrs attrs{.ranks = ranks, .shape = {ranks * shard}};
  return b.emit1(OpCode::all_gather, attrs, {x});
}

}  // namespace

Deal::Deal(std::span<UpdateBuilder> all)
    : b_(all[0].b()),
      attrs_(all[0].attrs()),
      n_(std::ssize(all)),
      count_(ceil_div(n_, attrs_.ranks)),
      size_(n_elems(attrs_.shape)) {}

ValueIds Deal::out(const ValueIds& shards) {
  if (attrs_.ranks == 1) return shards;
  const int64_t shard = b_.type(shards[0]).n_elems(), mine = first(attrs_.rank);
  const ValueId concatenated = b_.emit1(OpCode::concatenate, AxisAttrs{0}, shards);
  const ValueId all = b_.reshape(gather(b_, concatenated, attrs_.ranks), {attrs_.ranks, n_, shard});
  ValueIds whole;
  for (int64_t i = mine; i < mine + count_; ++i) {
    const ValueId flat = b_.reshape(part(b_, all, 1, i, 1), {attrs_.ranks * shard});
    whole.push_back(b_.reshape(part(b_, flat, 0, 0, size_), attrs_.shape));
  }
  return whole;
}

ValueIds Deal::back(ValueId results) {
  const bool is_dealt = attrs_.ranks > 1;
  const ValueId all =
      is_dealt ? gather(b_, results, attrs_.ranks) : b_.reshape(results, {n_ * size_});
  const int64_t stride = b_.type(all).n_elems() / attrs_.ranks;
  const ShardAttrs own{.ranks = attrs_.ranks, .rank = attrs_.rank};
  ValueIds shards;
  for (int64_t i = 0; i < n_; ++i) {
    const int64_t rank = i / count_, at = rank * stride + (i - first(rank)) * size_;
    const ValueId whole = b_.reshape(run_of(b_, all, at, size_), attrs_.shape);
    shards.push_back(is_dealt ? b_.emit1(OpCode::take_shard, own, {whole}) : whole);
  }
  return shards;
}

}  // namespace octet
