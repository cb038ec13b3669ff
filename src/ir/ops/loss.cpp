// cross_entropy: nll[t] = lse[t] - logits[t, labels[t]], 0 where the label is -1; lse = log sum
// exp;
//   loss = inv_n * sum nll.
// cross_entropy_grad: dlogits[t, v] = dloss * inv_n * (exp(logits[t, v] - lse[t]) - [v = label])
//   where the label is valid, else 0.
// A label outside [0, V) is as -1. inv_n is a step scalar: no gradient flows through it.
#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Results infer_cross_entropy(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("cross_entropy", "logits", in[0]);
  need_rank("cross_entropy", "logits", in[0], 2);
  if (in[0].shape[1] < 1) fail("cross_entropy", "logits must have at least one class, got 0");
  const Shape rows{in[0].shape[0]};
  need_int("cross_entropy", "labels", in[1]);
  need_shape("cross_entropy", "labels", in[1], rows);
  need_float("cross_entropy", "inv_n", in[2], {});
  return {real({}), real(rows), real(rows)};
}

Results infer_cross_entropy_grad(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  const auto op = op_def(OpCode::cross_entropy_grad).name;
  need_float(op, "dloss", in[0], {});
  need_float(op, "logits", in[1]);
  need_rank(op, "logits", in[1], 2);
  const Shape rows{in[1].shape[0]};
  need_int(op, "labels", in[2]);
  need_shape(op, "labels", in[2], rows);
  need_float(op, "lse", in[3], rows);
  need_float(op, "inv_n", in[4], {});
  return {real(in[1].shape)};
}

Values vjp_cross_entropy(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  if (call.dresults[0] == kNoValue) return Values(3, kNoValue);
  const Node& n = call.node;
  const ValueId dlogits =
      b.emit1(OpCode::cross_entropy_grad, NoAttrs{},
              {call.dresults[0], n.operands[0], n.operands[1], n.results[1], n.operands[2]});
  return {dlogits, kNoValue, kNoValue};
}

// 1 at each row's label, [T, V]; a row of zeros where there is none.
ValueId one_hot(Builder& b, ValueId labels, const Shape& shape) {
  const ValueId classes = b.emit1(OpCode::iota, IotaAttrs{.shape = shape, .axis = 1}, {});
  const ValueId hit = b.emit1(OpCode::equal, NoAttrs{}, {classes, b.broadcast(labels, shape, {0})});
  return b.select(hit, b.fill(shape, 1), b.fill(shape, 0));
}

Values decompose_cross_entropy(Builder& b, const Node& node) {
  const ValueId logits = node.operands[0];
  const Shape shape = b.shape(logits);
  const ValueId largest = b.reduce_max(logits, {1});
  const ValueId e = b.unary(OpCode::exp, b.sub(logits, b.broadcast(largest, shape, {0})));
  const ValueId lse = b.add(largest, b.unary(OpCode::log, b.reduce_sum(e, {1})));
  const ValueId hot = one_hot(b, node.operands[1], shape);
  const ValueId valid = b.reduce_sum(hot, {1});
  const ValueId picked = b.reduce_sum(b.mul(hot, logits), {1});
  const ValueId nll = b.mul(valid, b.sub(lse, picked));
  return {b.mul(node.operands[2], b.reduce_sum(nll, {0})), lse, nll};
}

Values decompose_cross_entropy_grad(Builder& b, const Node& node) {
  const ValueId logits = node.operands[1];
  const Shape shape = b.shape(logits);
  const ValueId p = b.unary(OpCode::exp, b.sub(logits, b.broadcast(node.operands[3], shape, {0})));
  const ValueId hot = one_hot(b, node.operands[2], shape);
  const ValueId valid = b.broadcast(b.reduce_sum(hot, {1}), shape, {0});
  const ValueId factor = b.broadcast(b.mul(node.operands[0], node.operands[4]), shape, {});
  return {b.mul(factor, b.sub(b.mul(valid, p), hot))};
}

Cost cost_cross_entropy(const Graph& graph, const Node& node) {
  return {.flops = 4 * static_cast<double>(graph.type(node.operands[0]).n_elems()),
          .bytes = moved_bytes(graph, node)};
}
Cost cost_cross_entropy_grad(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, 4);
}

constexpr InplacePair kInplaceLogits[] = {{.result = 0, .operand = 1}};

}  // namespace

constinit const OpDef defs::cross_entropy =
    define(OpCode::cross_entropy, {.infer = infer_cross_entropy,
                                   .vjp = vjp_cross_entropy,
                                   .decompose = decompose_cross_entropy,
                                   .scale = scale::cross_entropy,
                                   .cost = cost_cross_entropy});
constinit const OpDef defs::cross_entropy_grad =
    define(OpCode::cross_entropy_grad, {.infer = infer_cross_entropy_grad,
                                        .decompose = decompose_cross_entropy_grad,
                                        .scale = scale::cross_entropy_grad,
                                        .cost = cost_cross_entropy_grad,
                                        .inplace = kInplaceLogits});

}  // namespace octet::ops
