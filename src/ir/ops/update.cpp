// global_norm: norm = sqrt of the sum of all squares; grad_scale = clip > 0 ? min(1, clip / (norm +
// 1e-6)) : 1;
//   found_nonfinite: the norm is NaN or Inf.
// adamw_step (Loshchilov & Hutter 2019), in f32 and in this order, with g first times grad_scale:
//   m' = b1 m + (1-b1) g      v' = b2 v + ((1-b2) g) g      w' = w - lr ((m' / c1) / (sqrt(v' / c2)
//   + eps) + wd w) c1 = 1 - b1^t and c2 = 1 - b2^t are operands. found_nonfinite: w, m, v and w_lo
//   stay as they are. With w_lo, w is bf16 and w_lo the i16 remainder: bits(w) << 16 plus w_lo are
//   the bits of the f32 master.
#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

Results infer_global_norm(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("global_norm", "clip", in[0], {});
  for (size_t i = 1; i < in.size(); ++i) need_float("global_norm", "gradient", in[i]);
  return {real({}), real({}), {.dtype = Dtype::boolean, .shape = {}}};
}

Results infer_adamw_step(const Attrs& attrs, Types in) {
  std::get<AdamwAttrs>(attrs);
  const auto op = op_def(OpCode::adamw_step).name;
  const Shape& shape = in[0].shape;
  need_float(op, "w", in[0]);
  need_float(op, "g", in[1], shape);
  need_float(op, "m", in[2], shape);
  need_float(op, "v", in[3], shape);
  need_float(op, "lr", in[4], {});
  need_float(op, "c1", in[5], {});
  need_float(op, "c2", in[6], {});
  need_float(op, "grad_scale", in[7], {});
  need_bool(op, "found_nonfinite", in[8]);
  need_shape(op, "found_nonfinite", in[8], {});
  Results results{in[0], in[2], in[3]};
  if (absent(in, 9)) return results;
  if (in[0].dtype != Dtype::bf16 || in[9] != TensorType{.dtype = Dtype::i16, .shape = shape}) {
    fail(op, "expected a bf16 w and an i16 w_lo of its shape, got {} and {}", to_string(in[0]),
         to_string(in[9]));
  }
  results.push_back(in[9]);
  return results;
}

Values decompose_global_norm(Builder& b, const Node& node) {
  const ValueId clip = node.operands[0];
  ValueId sum = b.fill({}, 0);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    const ValueId g = node.operands[i];
    const Shape all = iota_axes(b.shape(g).size());
    sum = b.add(sum, b.reduce_sum(b.unary(OpCode::square, g), all));
  }
  const ValueId norm = b.unary(OpCode::sqrt, sum);
  const ValueId zero = b.fill({}, 0);
  const ValueId one = b.fill({}, 1);
  const ValueId ratio = b.div(clip, b.plus(norm, 1e-6));
  const ValueId clips = b.emit1(OpCode::less, NoAttrs{}, {zero, clip});
  const ValueId grad_scale =
      b.select(clips, b.emit1(OpCode::minimum, NoAttrs{}, {one, ratio}), one);
  // n - n is 0 for a finite n alone.
  const ValueId finite = b.emit1(OpCode::equal, NoAttrs{}, {b.sub(norm, norm), zero});
  const ValueId found = b.emit1(OpCode::less, NoAttrs{}, {b.select(finite, one, zero), one});
  return {norm, grad_scale, found};
}

Values decompose_adamw_step(Builder& b, const Node& node) {
  if (!absent(node, 9)) fail("adamw_step", "the bits of a remainder have no decomposition");
  const auto& a = std::get<AdamwAttrs>(node.attrs);
  const ValueId w = node.operands[0];
  const Shape shape = b.shape(w);
  const auto everywhere = [&](size_t i) { return b.broadcast(node.operands[i], shape, {}); };
  const ValueId g = b.mul(node.operands[1], everywhere(7));
  const ValueId m = b.add(b.scaled(node.operands[2], a.beta1), b.scaled(g, 1 - a.beta1));
  const ValueId v = b.add(b.scaled(node.operands[3], a.beta2), b.mul(b.scaled(g, 1 - a.beta2), g));
  const ValueId root = b.unary(OpCode::sqrt, b.div(v, everywhere(6)));
  const ValueId step = b.div(b.div(m, everywhere(5)), b.plus(root, a.eps));
  const ValueId decayed = b.add(step, b.scaled(w, a.weight_decay));
  const ValueId next = b.sub(w, b.mul(everywhere(4), decayed));
  const ValueId found = everywhere(8);
  return {b.select(found, w, next), b.select(found, node.operands[2], m),
          b.select(found, node.operands[3], v)};
}

Cost cost_global_norm(const Graph& graph, const Node& node) {
  double flops = 0;
  for (const ValueId id : node.operands)
    flops += 2.0 * static_cast<double>(graph.type(id).n_elems());
  return {.flops = flops, .bytes = moved_bytes(graph, node)};
}
Cost cost_adamw_step(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, 15);
}

constexpr InplacePair kInplaceUpdate[] = {{.result = 0, .operand = 0},
                                          {.result = 1, .operand = 2},
                                          {.result = 2, .operand = 3},
                                          {.result = 3, .operand = 9}};

}  // namespace

constinit const OpDef kGlobalNorm = {.code = OpCode::global_norm,
                                     .name = "global_norm",
                                     .min_operands = 1,
                                     .max_operands = -1,
                                     .infer = infer_global_norm,
                                     .decompose = decompose_global_norm,
                                     .cost = cost_global_norm,
                                     .statistics = 0b11};
constinit const OpDef kAdamwStep = {.code = OpCode::adamw_step,
                                    .name = "adamw_step",
                                    .min_operands = 9,
                                    .max_operands = 10,
                                    .infer = infer_adamw_step,
                                    .decompose = decompose_adamw_step,
                                    .cost = cost_adamw_step,
                                    .inplace = kInplaceUpdate};

}  // namespace octet::ops
