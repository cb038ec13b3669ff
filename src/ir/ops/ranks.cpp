// Collectives: what the ranks of a group compute together. All ranks run the same nodes in the same
// order; attributes name how many there are, `rank` which this is. Shards: ir/sharding.h.
//
// Sums are taken in f32 in the order of the ranks, beginning with `into` where it is there, and
// rounded once to the result's type: their bits depend on the number of ranks alone. With
// `ranks_a_host` L, what is added to `into` in this way are sums of L neighbours each, which are
// f32 and taken in their order: the bits then depend on the number of ranks and L. Of eight-bit
// floats x, what is summed is x scale, with one scale that all ranks have. sharded_norm
// adds sums of squares of 256 elements exactly (math/exact_sum.h), so that its bits depend on
// nothing but the elements: those of gradients, and those that reduce_scatter has made of its
// results (ir/sharding.h), in any order.
#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/sharding.h"

namespace octet::ops {
namespace {

void need_ranks(std::string_view op, int64_t ranks) {
  if (ranks < 1 || ranks > (1 << 20)) fail(op, "ranks must be from 1 to 2^20, got {}", ranks);
}

void need_sum(std::string_view op, const CollectiveAttrs& a) {
  const int64_t each = a.ranks_a_host;
  if (each != 0 && (each < 2 || each >= a.ranks || a.ranks % each != 0))
    fail(op, "ranks_a_host must be 0 or a divisor of {} ranks between them and 1, got {}", a.ranks,
         each);
}

Shape shard_shape(const Shape& whole, int64_t ranks) {
  return {shard_elems(n_elems(whole), ranks)};
}

Results infer_take_shard(const Attrs& attrs, Types in) {
  const auto& a = std::get<ShardAttrs>(attrs);
  need_ranks("take_shard", a.ranks);
  if (a.rank < 0 || a.rank >= a.ranks)
    fail("take_shard", "rank must be from 0 to {}, got {}", a.ranks - 1, a.rank);
  return {moved(in[0], shard_shape(in[0].shape, a.ranks))};
}

Results infer_all_gather(const Attrs& attrs, Types in) {
  const auto& a = std::get<CollectiveAttrs>(attrs);
  need_ranks("all_gather", a.ranks);
  need_dims("all_gather", "shape", a.shape);
  need_shape("all_gather", "x", in[0], shard_shape(a.shape, a.ranks));
  return {moved(in[0], a.shape)};
}

void need_summand(std::string_view op, Types in) {
  const TensorType& x = in[Reduce::x];
  need_float(op, "x", x);
  if (x.is_scaled() && !x.has(Granularity::Kind::tensor))
    fail(op, "x must have one scale, got {}", to_string(x));
}

Results infer_reduce_scatter(const Attrs& attrs, Types in) {
  const auto& a = std::get<CollectiveAttrs>(attrs);
  need_ranks("reduce_scatter", a.ranks);
  need_sum("reduce_scatter", a);
  need_summand("reduce_scatter", in);
  const Shape shape = shard_shape(in[Reduce::x].shape, a.ranks);
  if (!absent(in, Reduce::into)) need_float("reduce_scatter", "into", in[Reduce::into], shape);
  if (!a.squares) return {real(shape), absent_type()};
  const Shape squares = {square_parts(shape[0]), kSquareWords};
  return {real(shape), {.dtype = Dtype::u32, .shape = squares}};
}

Results infer_all_reduce(const Attrs& attrs, Types in) {
  const auto& a = std::get<CollectiveAttrs>(attrs);
  need_ranks("all_reduce", a.ranks);
  const TensorType& x = in[Reduce::x];
  if (a.reduction == RankReduction::sum) {
    need_sum("all_reduce", a);
    need_summand("all_reduce", in);
    if (!absent(in, Reduce::into)) need_float("all_reduce", "into", in[Reduce::into], x.shape);
    return {real(x.shape), absent_type()};
  }
  if (!absent(in, Reduce::into) || x.is_scaled())
    fail("all_reduce", "a maximum takes no into and no scale");
  if (x.dtype != Dtype::boolean) need_float("all_reduce", "x", x);
  return {moved(x, x.shape), absent_type()};
}

Results infer_sharded_norm(const Attrs& attrs, Types in) {
  need_ranks("sharded_norm", std::get<CollectiveAttrs>(attrs).ranks);
  need_float("sharded_norm", "clip", in[0], {});
  for (size_t i = 1; i < in.size(); ++i) {
    const TensorType& x = in[i];
    const bool is_sum = x.dtype == Dtype::u32 && x.shape.size() == 2 && x.shape[1] == kSquareWords;
    if (!is_sum) need_float("sharded_norm", "gradient", x);
  }
  return {real({}), real({}), {Dtype::boolean, {}}};
}

constexpr ScalePlace kScaleOfSum[] = {{Reduce::x, Reduce::scale}};
// all_gather: where its operand lies in its place already.
constexpr InplacePair kInplaceShard[] = {{.result = 0, .operand = Unary::x}};
constexpr InplacePair kInplaceInto[] = {{.result = 0, .operand = Reduce::into}};

}  // namespace

constinit const OpDef defs::take_shard = define(OpCode::take_shard, {.infer = infer_take_shard});
constinit const OpDef defs::all_gather =
    define(OpCode::all_gather, {.infer = infer_all_gather, .inplace = kInplaceShard});
constinit const OpDef defs::reduce_scatter =
    define(OpCode::reduce_scatter,
           {.infer = infer_reduce_scatter, .inplace = kInplaceInto, .scales = kScaleOfSum});
constinit const OpDef defs::all_reduce =
    define(OpCode::all_reduce,
           {.infer = infer_all_reduce, .inplace = kInplaceInto, .scales = kScaleOfSum});
constinit const OpDef defs::sharded_norm =
    define(OpCode::sharded_norm, {.infer = infer_sharded_norm});

}  // namespace octet::ops
