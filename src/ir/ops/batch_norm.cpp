// Batch norm over the rows of [T, C] (Ioffe & Szegedy 2015; PyTorch's BatchNorm2d of pixels whose
// channels lie together).
//   y[t,c] = (x[t,c] - mean[c]) / sqrt(variance[c] + eps) w[c] + b[c]
// own: mean and variance are those of the T rows, and the operands are the running ones, whose next
// values are (1 - momentum) old + momentum own, of a variance own T / (T - 1); they stay where that
// is not finite. Else mean and variance are the operands, constants to a gradient, and y is the one
// result. Everything is f32 inside.
//   batch_norm_grad, of the mean and variance that y had, with n = (x - mean) rstd:
//   db = sum_t dy    dw = sum_t dy n    dx = w rstd (dy - db / T - n dw / T), not own: w rstd dy
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Results infer_batch_norm(const Attrs& attrs, Types in) {
  using Op = BatchNorm;
  const auto& a = std::get<BatchNormAttrs>(attrs);
  need_float("batch_norm", "x", in[Op::x]);
  need_matrix("batch_norm", "x", in[Op::x]);
  const Shape& x = in[Op::x].shape;
  for (SlotId i = Op::weight; i <= Op::variance; ++i)
    need_float("batch_norm", op_def(OpCode::batch_norm).operands[i].name, in[i], {x[1]});
  if (!a.own) return {real(x)};
  if (x[0] < 2) fail("batch_norm", "expected own statistics of 2 rows or more, got {}", x[0]);
  Results results{real(x)};
  results.resize(op_def(OpCode::batch_norm).results.size(), real({x[1]}));
  return results;
}

Results infer_batch_norm_grad(const Attrs&, Types in) {
  using Op = BatchNormGrad;
  constexpr std::string_view kName = "batch_norm_grad";
  need_float(kName, "x", in[Op::x]);
  need_matrix(kName, "x", in[Op::x]);
  const Shape& x = in[Op::x].shape;
  if (x[0] < 1) fail(kName, "expected rows, got {}", to_string(x));
  need_float(kName, "dy", in[Op::dy], x);
  for (SlotId i = Op::own_mean; i <= Op::weight; ++i)
    need_float(kName, op_def(OpCode::batch_norm_grad).operands[i].name, in[i], {x[1]});
  return {real(x), real({x[1]}), real({x[1]})};
}

ValueId wide(Builder& b, ValueId x) {
  return b.type(x).dtype == Dtype::f32 ? x : b.cast(x, Dtype::f32);
}
ValueId per_channel(Builder& b, ValueId x, const Shape& shape) {
  return b.broadcast(x, shape, {1});
}
ValueId rstd_of(Builder& b, ValueId variance, const Attrs& attrs) {
  return b.unary(OpCode::rsqrt, b.plus(variance, std::get<BatchNormAttrs>(attrs).eps));
}

Values vjp_batch_norm(Builder& b, const VjpCall& call) {
  using Op = BatchNorm;
  only_first_gradient(call);
  const Node& n = call.node;
  const bool own = std::get<BatchNormAttrs>(n.attrs).own;
  const ValueId mean = own ? n.out(Op::own_mean) : n.in(Op::mean);
  const ValueId variance = own ? n.out(Op::own_variance) : n.in(Op::variance);
  const Values d = b.emit(OpCode::batch_norm_grad, n.attrs,
                          {call.dresults[0], n.in(Op::x), mean, variance, n.in(Op::weight)});
  return {d[BatchNormGrad::dx], d[BatchNormGrad::dweight], d[BatchNormGrad::dbias], kNoValue,
          kNoValue};
}

// (1 - momentum) old + share own, or old.
ValueId next_of(Builder& b, ValueId old, ValueId own, const BatchNormAttrs& a, double share) {
  const ValueId was = wide(b, old);
  const ValueId next = b.add(b.scaled(was, 1 - a.momentum), b.scaled(own, a.momentum * share));
  const ValueId bound = b.fill_like(next, std::numeric_limits<float>::max());
  return b.select(b.less(b.unary(OpCode::abs, next), bound), next, was);
}

Values decompose_batch_norm(Builder& b, const Node& node) {
  using Op = BatchNorm;
  const auto& a = std::get<BatchNormAttrs>(node.attrs);
  const ValueId x = wide(b, node.in(Op::x));
  const Shape shape = b.shape(x);
  const auto n = static_cast<double>(shape[0]);
  ValueId mean = wide(b, node.in(Op::mean)), variance = wide(b, node.in(Op::variance));
  const auto mean_of = [&](ValueId value) { return b.scaled(b.reduce_sum(value, {0}), 1 / n); };
  if (a.own) mean = mean_of(x);
  const ValueId centred = b.sub(x, per_channel(b, mean, shape));
  if (a.own) variance = mean_of(b.unary(OpCode::square, centred));
  const ValueId normal = b.mul(centred, per_channel(b, rstd_of(b, variance, a), shape));
  const ValueId scaled = b.mul(normal, per_channel(b, wide(b, node.in(Op::weight)), shape));
  Values results{b.add(scaled, per_channel(b, wide(b, node.in(Op::bias)), shape))};
  if (!a.own) return results;
  results.insert(results.end(), {mean, variance, next_of(b, node.in(Op::mean), mean, a, 1),
                                 next_of(b, node.in(Op::variance), variance, a, n / (n - 1))});
  return results;
}

Values decompose_batch_norm_grad(Builder& b, const Node& node) {
  using Op = BatchNormGrad;
  const ValueId x = wide(b, node.in(Op::x)), dy = wide(b, node.in(Op::dy));
  const Shape shape = b.shape(x);
  const auto n = static_cast<double>(shape[0]);
  const ValueId rstd = rstd_of(b, wide(b, node.in(Op::own_variance)), node.attrs);
  const ValueId mean = per_channel(b, wide(b, node.in(Op::own_mean)), shape);
  const ValueId normal = b.mul(b.sub(x, mean), per_channel(b, rstd, shape));
  const ValueId sum = b.reduce_sum(dy, {0}), along = b.reduce_sum(b.mul(dy, normal), {0});
  const bool own = std::get<BatchNormAttrs>(node.attrs).own;
  ValueId rest = dy, bent = kNoValue;
  if (own) {
    rest = b.sub(dy, per_channel(b, b.scaled(sum, 1 / n), shape));
    bent = b.mul(normal, per_channel(b, b.scaled(along, 1 / n), shape));
  }
  const ValueId factor = b.mul(wide(b, node.in(Op::weight)), rstd);
  if (own) rest = b.sub(rest, bent);
  return {b.mul(per_channel(b, factor, shape), rest), along, sum};
}

constexpr InplacePair kInplace[] = {{BatchNorm::next_mean, BatchNorm::mean},
                                    {BatchNorm::next_variance, BatchNorm::variance}};

}  // namespace

constinit const OpDef defs::batch_norm =
    define(OpCode::batch_norm, {.infer = infer_batch_norm,
                                .vjp = vjp_batch_norm,
                                .decompose = decompose_batch_norm,
                                .scale = scale::of_steps,
                                .cost = cost_per_result<8>,
                                .inplace = kInplace});
constinit const OpDef defs::batch_norm_grad =
    define(OpCode::batch_norm_grad, {.infer = infer_batch_norm_grad,
                                     .decompose = decompose_batch_norm_grad,
                                     .scale = scale::of_steps,
                                     .cost = cost_per_result<11>});

}  // namespace octet::ops
