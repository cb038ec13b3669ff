// RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) over the last axis of [T, D].
//   rms_norm:   y = x * rstd * w,                 rstd = 1 / sqrt(mean x^2 + eps)
//   layer_norm: y = (x - mean) * rstd * w + b,    rstd = 1 / sqrt(mean (x - mean)^2 + eps)
// Without w the factor is 1; b needs w. Where the statistics are known, those of another x, they
// are operands, and y is the one result. Their gradients read rstd and mean as the forward op gave
// them, and may take an addend c, the gradient that reaches x by another way: dx + c, rounded once.
#include "ir/ops/norm.h"

#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

// Behind x, w and the scales of x: all statistics are given, or none.
bool has_statistics(OpCode op, Types in, SlotId first, SlotId last) {
  const auto name = op_def(op).name;
  for (SlotId i = first; i <= last; ++i) {
    if (absent(in, i) != absent(in, last)) fail(name, "all statistics are given, or none");
    if (!absent(in, i)) need_float(name, op_def(op).operands[i].name, in[i], {in[0].shape[0]});
  }
  return !absent(in, last);
}

Results infer_rms_norm(const Attrs& attrs, Types in) {
  need_float("rms_norm", "x", in[0]);
  need_rank("rms_norm", "x", in[0], 2);
  if (!absent(in, 1)) need_float("rms_norm", "weight", in[1], {in[0].shape[1]});
  if (has_statistics(OpCode::rms_norm, in, RmsNorm::known_rstd, RmsNorm::known_rstd))
    return with_amax_results(OpCode::rms_norm, attrs, {real(in[0].shape)});
  return with_amax_results(OpCode::rms_norm, attrs, {real(in[0].shape), real({in[0].shape[0]})});
}

// Where the gradients' addends stand.
constexpr SlotId kRmsAddend = RmsNormGrad::addend, kLayerAddend = LayerNormGrad::addend;
constexpr InplacePair kInplaceRmsAddend[] = {{RmsNormGrad::dx, kRmsAddend}};
constexpr InplacePair kInplaceLayerAddend[] = {{LayerNormGrad::dx, kLayerAddend}};

Results infer_rms_norm_grad(const Attrs& attrs, Types in) {
  need_float("rms_norm_grad", "x", in[1]);
  need_rank("rms_norm_grad", "x", in[1], 2);
  need_float("rms_norm_grad", "dy", in[0], in[1].shape);
  need_float("rms_norm_grad", "rstd", in[2], {in[1].shape[0]});
  if (!absent(in, kRmsAddend)) need_float("rms_norm_grad", "c", in[kRmsAddend], in[1].shape);
  Results results{real(in[1].shape)};
  if (absent(in, 3)) return with_amax_results(OpCode::rms_norm_grad, attrs, results);
  need_float("rms_norm_grad", "weight", in[3], {in[1].shape[1]});
  results.push_back(real({in[1].shape[1]}));
  return with_amax_results(OpCode::rms_norm_grad, attrs, results);
}

Results infer_layer_norm(const Attrs& attrs, Types in) {
  need_float("layer_norm", "x", in[0]);
  need_rank("layer_norm", "x", in[0], 2);
  const TensorType rows = real({in[0].shape[0]});
  if (!absent(in, 1)) need_float("layer_norm", "weight", in[1], {in[0].shape[1]});
  if (!absent(in, 2)) {
    if (absent(in, 1)) fail("layer_norm", "a bias needs a weight");
    need_float("layer_norm", "bias", in[2], {in[0].shape[1]});
  }
  if (has_statistics(OpCode::layer_norm, in, LayerNorm::known_mean, LayerNorm::known_rstd))
    return with_amax_results(OpCode::layer_norm, attrs, {real(in[0].shape)});
  return with_amax_results(OpCode::layer_norm, attrs, {real(in[0].shape), rows, rows});
}

Results infer_layer_norm_grad(const Attrs& attrs, Types in) {
  need_float("layer_norm_grad", "x", in[1]);
  need_rank("layer_norm_grad", "x", in[1], 2);
  need_float("layer_norm_grad", "dy", in[0], in[1].shape);
  need_float("layer_norm_grad", "mean", in[2], {in[1].shape[0]});
  need_float("layer_norm_grad", "rstd", in[3], {in[1].shape[0]});
  if (!absent(in, kLayerAddend)) need_float("layer_norm_grad", "c", in[kLayerAddend], in[1].shape);
  Results results{real(in[1].shape)};
  if (absent(in, 4)) return with_amax_results(OpCode::layer_norm_grad, attrs, results);
  need_float("layer_norm_grad", "weight", in[4], {in[1].shape[1]});
  results.push_back(real({in[1].shape[1]}));
  results.push_back(real({in[1].shape[1]}));
  return with_amax_results(OpCode::layer_norm_grad, attrs, results);
}

void need_own_statistics(const Node& node, SlotId known_rstd) {
  if (!absent(node, known_rstd)) fail(op_def(node.op).name, "no gradient of known statistics");
}

Values vjp_rms_norm(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  need_own_statistics(n, RmsNorm::known_rstd);
  Values grads(n.operands.size(), kNoValue);
  if (call.dresults[0] == kNoValue) return grads;
  Values operands{call.dresults[0], n.operands[0], n.results[1]};
  if (!absent(n, 1)) operands.push_back(n.operands[1]);
  const Values results = b.emit(OpCode::rms_norm_grad, n.attrs, operands);
  grads[0] = results[0];
  if (!absent(n, 1)) grads[1] = results[1];
  return grads;
}

Values vjp_layer_norm(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  need_own_statistics(n, LayerNorm::known_rstd);
  Values grads(n.operands.size(), kNoValue);
  if (call.dresults[0] == kNoValue) return grads;
  Values operands{call.dresults[0], n.operands[0], n.results[1], n.results[2]};
  if (!absent(n, 1)) operands.push_back(n.operands[1]);
  const Values results = b.emit(OpCode::layer_norm_grad, n.attrs, operands);
  grads[0] = results[0];
  if (!absent(n, 1)) grads[1] = results[1];
  if (!absent(n, 2)) grads[2] = results[2];
  return grads;
}

// [T] or [D] repeated to [T, D].
ValueId per_row(Builder& b, ValueId x, const Shape& shape) {
  return b.broadcast(x, shape, {0});
}
ValueId per_column(Builder& b, ValueId x, const Shape& shape) {
  return b.broadcast(x, shape, {1});
}

ValueId row_mean(Builder& b, ValueId x) {
  const auto width = static_cast<double>(b.shape(x)[1]);
  return b.scaled(b.reduce_sum(x, {1}), 1 / width);
}

ValueId rstd_of(Builder& b, ValueId x, const Attrs& attrs) {
  const ValueId mean_square = row_mean(b, b.unary(OpCode::square, x));
  return b.unary(OpCode::rsqrt, b.plus(mean_square, std::get<NormAttrs>(attrs).eps));
}

Values decompose_rms_norm(Builder& b, const Node& node) {
  if (!absent(node, RmsNorm::known_rstd)) {
    return {emit_normalized(b, {.x = emit_f32(b, node, kScaleOfX<RmsNorm>[0]),
                                .mean = kNoValue,
                                .rstd = node.in(RmsNorm::known_rstd),
                                .weight = node.in(RmsNorm::weight),
                                .bias = kNoValue})};
  }
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId x = node.operands[0];
  const Shape shape = b.shape(x);
  const ValueId rstd = rstd_of(b, x, node.attrs);
  return {emit_normalized(b, {x, kNoValue, rstd, operand(node, 1), kNoValue}), rstd};
}

Values decompose_layer_norm(Builder& b, const Node& node) {
  if (!absent(node, LayerNorm::known_rstd)) {
    return {emit_normalized(b, {.x = emit_f32(b, node, kScaleOfX<LayerNorm>[0]),
                                .mean = node.in(LayerNorm::known_mean),
                                .rstd = node.in(LayerNorm::known_rstd),
                                .weight = node.in(LayerNorm::weight),
                                .bias = node.in(LayerNorm::bias)})};
  }
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId x = node.operands[0];
  const Shape shape = b.shape(x);
  const ValueId mean = row_mean(b, x);
  const ValueId centred = b.sub(x, per_row(b, mean, shape));
  const ValueId rstd = rstd_of(b, centred, node.attrs);
  return {emit_normalized(b, {centred, kNoValue, rstd, operand(node, 1), operand(node, 2)}), mean,
          rstd};
}

// The gradient without its addend, in f32, and the sum of both.
Values emit_without_addend(Builder& b, const Node& node, size_t addend) {
  Values operands = node.operands;
  operands.resize(addend);
  const ResultTypes wide(node.results.size(), Dtype::f32);
  Values results = b.emit_typed(node.op, node.attrs, operands, wide);
  results[0] = b.add(results[0], node.operands[addend]);
  return results;
}

// With h = dy * w and the normalized n: dx = rstd * (h - n * mean(h * n)), dw = sum over rows of dy
// * n.
Values decompose_rms_norm_grad(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (!absent(node, kRmsAddend)) return emit_without_addend(b, node, kRmsAddend);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId dy = node.operands[0];
  const Shape shape = b.shape(dy);
  const ValueId rstd = per_row(b, node.operands[2], shape);
  const ValueId normal = b.mul(node.operands[1], rstd);
  const bool weighted = !absent(node, 3);
  const ValueId h = weighted ? b.mul(dy, per_column(b, node.operands[3], shape)) : dy;
  const ValueId along = per_row(b, row_mean(b, b.mul(h, normal)), shape);
  Values results{b.mul(rstd, b.sub(h, b.mul(normal, along)))};
  if (weighted) results.push_back(b.reduce_sum(b.mul(dy, normal), {0}));
  return results;
}

// The same with dx = rstd * (h - mean(h) - n * mean(h * n)), db = sum over rows of dy.
Values decompose_layer_norm_grad(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (!absent(node, kLayerAddend)) return emit_without_addend(b, node, kLayerAddend);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId dy = node.operands[0];
  const Shape shape = b.shape(dy);
  const ValueId rstd = per_row(b, node.operands[3], shape);
  const ValueId centred = b.sub(node.operands[1], per_row(b, node.operands[2], shape));
  const ValueId normal = b.mul(centred, rstd);
  const bool weighted = !absent(node, 4);
  const ValueId h = weighted ? b.mul(dy, per_column(b, node.operands[4], shape)) : dy;
  const ValueId along = per_row(b, row_mean(b, b.mul(h, normal)), shape);
  const ValueId rest = b.sub(h, per_row(b, row_mean(b, h), shape));
  Values results{b.mul(rstd, b.sub(rest, b.mul(normal, along)))};
  if (weighted) {
    results.push_back(b.reduce_sum(b.mul(dy, normal), {0}));
    results.push_back(b.reduce_sum(dy, {0}));
  }
  return results;
}

template <int kFlops>
Cost cost_norm(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, kFlops);
}

}  // namespace

ValueId emit_f32(Builder& b, const Node& node, ScalePlace place) {
  const ValueId x = node.in(place.operand);
  const Dtype f32 = Dtype::f32;
  if (b.type(x).is_scaled()) return b.dequantize(x, node.in(place.scale), f32);
  if (b.type(x).dtype == Dtype::f32) return x;
  return b.cast(x, f32);
}

ValueId emit_normalized(Builder& b, const KnownNorm& norm) {
  const Shape shape = b.shape(norm.x);
  ValueId y = norm.x;
  if (norm.mean != kNoValue) y = b.sub(y, per_row(b, norm.mean, shape));
  y = b.mul(y, per_row(b, norm.rstd, shape));
  if (norm.weight != kNoValue) y = b.mul(y, per_column(b, norm.weight, shape));
  if (norm.bias != kNoValue) y = b.add(y, per_column(b, norm.bias, shape));
  return y;
}

constinit const OpDef defs::rms_norm = define(OpCode::rms_norm, {.infer = infer_rms_norm,
                                                                 .vjp = vjp_rms_norm,
                                                                 .decompose = decompose_rms_norm,
                                                                 .scale = scale::rms_norm,
                                                                 .cost = cost_norm<4>,
                                                                 .scales = kScaleOfX<RmsNorm>});
constinit const OpDef defs::rms_norm_grad =
    define(OpCode::rms_norm_grad, {.infer = infer_rms_norm_grad,
                                   .decompose = decompose_rms_norm_grad,
                                   .scale = scale::rms_norm_grad,
                                   .cost = cost_norm<9>,
                                   .inplace = kInplaceRmsAddend,
                                   .scales = kScaleOfX<RmsNormGrad>});
constinit const OpDef defs::layer_norm =
    define(OpCode::layer_norm, {.infer = infer_layer_norm,
                                .vjp = vjp_layer_norm,
                                .decompose = decompose_layer_norm,
                                .scale = scale::layer_norm,
                                .cost = cost_norm<7>,
                                .scales = kScaleOfX<LayerNorm>});
constinit const OpDef defs::layer_norm_grad =
    define(OpCode::layer_norm_grad, {.infer = infer_layer_norm_grad,
                                     .decompose = decompose_layer_norm_grad,
                                     .scale = scale::layer_norm_grad,
                                     .cost = cost_norm<12>,
                                     .inplace = kInplaceLayerAddend,
                                     .scales = kScaleOfX<LayerNormGrad>});

}  // namespace octet::ops
