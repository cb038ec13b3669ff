// cross_entropy: lse = log sum exp; nll[t] = lse[t] - logits[t, labels[t]], 0 where the label is
// -1;
//   loss = inv_n * sum of (1 - s) nll[t] + s mean over v of lse[t] - logits[t, v],
// s = smoothing, over the rows with a label: PyTorch's label_smoothing. nll is not smoothed.
// cross_entropy_grad: dlogits[t, v] = dloss[t] * inv_n *
//     (exp(logits[t, v] - lse[t]) - s / V - (1 - s) [v = label]) where the label is valid, else 0;
// dloss is one number, that of the loss, or one a row, as that of nll is.
// A label outside [0, V) is as -1. inv_n is a step scalar: no gradient flows through it, nor
// through lse.
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

// Smoothing of an op with this name.
double smoothing_of(std::string_view op, const Attrs& attrs) {
  const double s = std::get<CrossEntropyAttrs>(attrs).smoothing;
  if (!(s >= 0 && s < 1)) fail(op, "smoothing must be in [0, 1), got {}", s);
  return s;
}

Results infer_cross_entropy(const Attrs& attrs, Types in) {
  smoothing_of("cross_entropy", attrs);
  need_matrix("cross_entropy", "logits", in[0]);
  if (in[0].shape[1] < 1) fail("cross_entropy", "logits must have at least one class, got 0");
  const Shape rows{in[0].shape[0]};
  need_int("cross_entropy", "labels", in[1], rows);
  need_float("cross_entropy", "inv_n", in[2], {});
  return {real({}), real(rows), real(rows)};
}

Results infer_cross_entropy_grad(const Attrs& attrs, Types in) {
  const auto op = op_def(OpCode::cross_entropy_grad).name;
  smoothing_of(op, attrs);
  need_matrix(op, "logits", in[1]);
  const Shape rows{in[1].shape[0]};
  need_float(op, "dloss", in[0], in[0].shape.empty() ? Shape{} : rows);
  need_int(op, "labels", in[2], rows);
  need_float(op, "lse", in[3], rows);
  need_float(op, "inv_n", in[4], {});
  return {real(in[1].shape)};
}

Values vjp_cross_entropy(Builder& b, const VjpCall& call) {
  using L = CrossEntropy;
  const ValueId dloss = call.dresults[L::loss], dnll = call.dresults[L::nll];
  if (call.dresults[L::lse] != kNoValue)
    fail("cross_entropy", "no gradient flows through lse, a statistic");
  const Node& n = call.node;
  const auto gradient = [&](const Attrs& attrs, ValueId dy, ValueId inv_n) {
    return b.emit1(OpCode::cross_entropy_grad, attrs,
                   {dy, n.in(L::logits), n.in(L::labels), n.out(L::lse), inv_n});
  };
  ValueId dlogits = kNoValue;
  if (dloss != kNoValue) dlogits = gradient(n.attrs, dloss, n.in(L::inv_n));
  if (dnll != kNoValue) {
    const ValueId of_rows = gradient(CrossEntropyAttrs{}, dnll, b.fill({}, 1));
    dlogits = dlogits == kNoValue ? of_rows : b.add(dlogits, of_rows);
  }
  return {dlogits, kNoValue, kNoValue};
}

// True where class v is row t's label, [T, V].
ValueId is_label(Builder& b, ValueId labels, const Shape& shape) {
  const ValueId classes = b.iota(shape, 1);
  return b.equal(classes, b.broadcast(labels, shape, {0}));
}

// True where a row has a label, [T].
ValueId is_labelled(Builder& b, ValueId labels, const Shape& shape) {
  const ValueId label = b.unary(OpCode::cast, labels);
  const ValueId last = b.fill_like(label, static_cast<double>(shape[1] - 1));
  const ValueId above = b.maximum(label, b.fill_like(label, 0));
  const ValueId nearest = b.minimum(above, last);
  return b.equal(label, nearest);
}

ValueId or_zero(Builder& b, ValueId condition, ValueId x) {
  return b.select(condition, x, b.fill_like(x, 0));
}

// Logits that no label picks are not multiplied by 0: they may be infinite.
Values decompose_cross_entropy(Builder& b, const Node& node) {
  const ValueId logits = node.operands[0], labels = node.operands[1];
  const Shape shape = b.shape(logits);
  const ValueId largest = b.reduce_max(logits, {1});
  const ValueId e = b.unary(OpCode::exp, b.sub(logits, b.broadcast(largest, shape, {0})));
  const ValueId lse = b.add(largest, b.unary(OpCode::log, b.reduce_sum(e, {1})));
  const ValueId picked = b.reduce_sum(or_zero(b, is_label(b, labels, shape), logits), {1});
  const ValueId valid = is_labelled(b, labels, shape);
  const ValueId nll = or_zero(b, valid, b.sub(lse, picked));
  ValueId loss = nll;
  if (const double s = smoothing_of("cross_entropy", node.attrs); s != 0) {
    const ValueId mean = b.scaled(b.reduce_sum(logits, {1}), 1 / static_cast<double>(shape[1]));
    loss = b.add(nll, or_zero(b, valid, b.scaled(b.sub(picked, mean), s)));
  }
  return {b.mul(node.operands[2], b.reduce_sum(loss, {0})), lse, nll};
}

Values decompose_cross_entropy_grad(Builder& b, const Node& node) {
  const ValueId logits = node.operands[1], labels = node.operands[2];
  const Shape shape = b.shape(logits);
  const double s = smoothing_of("cross_entropy_grad", node.attrs);
  const double share = s / static_cast<double>(shape[1]);
  const ValueId target =
      b.select(is_label(b, labels, shape), b.fill(shape, share + (1 - s)), b.fill(shape, share));
  const ValueId p = b.unary(OpCode::exp, b.sub(logits, b.broadcast(node.operands[3], shape, {0})));
  const ValueId dloss = node.operands[0];
  const Shape rows = b.shape(dloss);
  const ValueId inv_n = rows.empty() ? node.operands[4] : b.broadcast(node.operands[4], rows, {});
  const ValueId factor = b.broadcast(b.mul(dloss, inv_n), shape, iota_axes(rows.size()));
  const ValueId valid = b.broadcast(is_labelled(b, labels, shape), shape, {0});
  return {or_zero(b, valid, b.mul(factor, b.sub(p, target)))};
}

constexpr InplacePair kInplaceLogits[] = {{.result = 0, .operand = 1}};

}  // namespace

constinit const OpDef defs::cross_entropy =
    define(OpCode::cross_entropy, {.infer = infer_cross_entropy,
                                   .vjp = vjp_cross_entropy,
                                   .decompose = decompose_cross_entropy,
                                   .scale = scale::cross_entropy,
                                   .cost = cost_per_operand<4>});
constinit const OpDef defs::cross_entropy_grad =
    define(OpCode::cross_entropy_grad, {.infer = infer_cross_entropy_grad,
                                        .decompose = decompose_cross_entropy_grad,
                                        .scale = scale::cross_entropy_grad,
                                        .cost = cost_per_result<4>,
                                        .inplace = kInplaceLogits});

}  // namespace octet::ops
