// RMSNorm (Zhang & Sennrich 2019) and LayerNorm (Ba et al. 2016) over the last axis of [T, D].
//   rms_norm:   y = x * rstd * w,                 rstd = 1 / sqrt(mean x^2 + eps)
//   layer_norm: y = (x - mean) * rstd * w + b,    rstd = 1 / sqrt(mean (x - mean)^2 + eps)
// Without w the factor is 1; b needs w. Where the statistics are known, those of another x, they
// are operands, and y is the one result. Their gradients read rstd and mean as the forward op gave
// them, and may take an addend c, the gradient that reaches x by another way: dx + c, rounded once.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/quantize_layers.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

// Behind the scales of x: all statistics are given, or none.
template <OpCode C, typename Op>
bool has_statistics(Types in) {
  const auto name = op_def(C).name;
  for (SlotId i = Op::x_scale + 1; i <= Op::known_rstd; ++i) {
    if (absent(in, i) != absent(in, Op::known_rstd))
      fail(name, "all statistics are given, or none");
    if (!absent(in, i)) need_float(name, op_def(C).operands[i].name, in[i], {in[0].shape[0]});
  }
  return !absent(in, Op::known_rstd);
}

template <OpCode C, typename Op>
Results infer_norm(const Attrs& attrs, Types in) {
  const auto name = op_def(C).name;
  need_matrix(name, "x", in[Op::x]);
  const double eps = std::get<NormAttrs>(attrs).eps;
  if (!(eps >= 0 && std::isfinite(eps))) fail(name, "eps must be finite, 0 or more, got {}", eps);
  const Shape& x = in[Op::x].shape;
  if (!absent(in, Op::weight)) need_float(name, "weight", in[Op::weight], {x[1]});
  if (const SlotId bias = row(C).norm.bias; !absent(in, bias)) {
    if (absent(in, Op::weight)) fail(name, "a bias needs a weight");
    need_float(name, "bias", in[bias], {x[1]});
  }
  Results results{real(x)};
  if (!has_statistics<C, Op>(in)) results.resize(op_def(C).own_results(), real({x[0]}));
  return with_amax_results(C, attrs, results);
}

template <OpCode C, typename Op>
Results infer_norm_grad(const Attrs& attrs, Types in) {
  const auto name = op_def(C).name;
  need_matrix(name, "x", in[Op::x]);
  const Shape& x = in[Op::x].shape;
  need_float(name, "dy", in[Op::dy], x);
  for (SlotId i = Op::x + 1; i < Op::weight; ++i)
    need_float(name, op_def(C).operands[i].name, in[i], {x[0]});
  if (!absent(in, Op::addend)) need_float(name, "c", in[Op::addend], x);
  Results results{real(x)};
  if (!absent(in, Op::weight)) {
    need_float(name, "weight", in[Op::weight], {x[1]});
    results.resize(op_def(C).own_results(), real({x[1]}));
  }
  return with_amax_results(C, attrs, results);
}

template <OpCode Gradient, typename Op>
Values vjp_norm(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  if (!absent(n, Op::known_rstd)) fail(op_def(n.op).name, "no gradient of known statistics");
  Values operands{call.dresults[0], n.in(Op::x)};
  operands.insert(operands.end(), n.results.begin() + 1, n.results.end());
  if (!absent(n, Op::weight)) operands.push_back(n.in(Op::weight));
  const Values results = b.emit(Gradient, n.attrs, operands);
  Values grads(n.operands.size(), kNoValue);
  for (size_t i = 0; i < std::min<size_t>(grads.size(), Op::x_scale); ++i)
    if (!absent(n, i)) grads[i] = results[i];
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

// kNoValue: x is centred already.
struct Statistics {
  ValueId mean = kNoValue, rstd = kNoValue;
};
// (x - mean) rstd w + b with the node's w and b, without what is absent.
ValueId emit_normalized(Builder& b, const Node& node, ValueId x, const Statistics& of) {
  const NormSlots& at = op_def(node.op).norm;
  const Shape shape = b.shape(x);
  if (of.mean != kNoValue) x = b.sub(x, per_row(b, of.mean, shape));
  ValueId y = b.mul(x, per_row(b, of.rstd, shape));
  if (!absent(node, at.weight)) y = b.mul(y, per_column(b, node.in(at.weight), shape));
  if (!absent(node, at.bias)) y = b.add(y, per_column(b, node.in(at.bias), shape));
  return y;
}

// x in f32, dequantized where it is quantized.
ValueId emit_f32(Builder& b, const Node& node) {
  const ScalePlace place = op_def(node.op).scales[0];
  const ValueId x = node.in(place.operand);
  const Dtype f32 = Dtype::f32;
  if (b.type(x).is_scaled()) return b.dequantize(x, node.in(place.scale), f32);
  if (b.type(x).dtype == Dtype::f32) return x;
  return b.cast(x, f32);
}

ValueId rstd_of(Builder& b, ValueId x, const Attrs& attrs) {
  const ValueId mean_square = row_mean(b, b.unary(OpCode::square, x));
  return b.unary(OpCode::rsqrt, b.plus(mean_square, std::get<NormAttrs>(attrs).eps));
}

Values decompose_norm(Builder& b, const Node& node) {
  const OpDef& def = op_def(node.op);
  if (!absent(node, def.norm.known_rstd)) return {emit_known(b, node)};
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  ValueId x = node.in(def.scales[0].operand);
  Values statistics;
  if (def.is_centred()) {
    statistics.push_back(row_mean(b, x));
    x = b.sub(x, per_row(b, statistics[0], b.shape(x)));
  }
  statistics.push_back(rstd_of(b, x, node.attrs));
  Values results{emit_normalized(b, node, x, {.rstd = statistics.back()})};
  results.insert(results.end(), statistics.begin(), statistics.end());
  return results;
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

// With h = dy * w and the normalized n: dx = rstd * (h - n * mean(h * n)), of a centred norm
// rstd * (h - mean(h) - n * mean(h * n)); dw = sum over rows of dy * n, db = that of dy.
template <typename Op>
Values decompose_norm_grad(Builder& b, const Node& node, Said said) {
  const SlotId mean = op_def(node.op).norm.mean;
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (!absent(node, Op::addend)) return emit_without_addend(b, node, Op::addend);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId dy = node.in(Op::dy);
  const Shape shape = b.shape(dy);
  const ValueId rstd = per_row(b, node.in(Op::rstd), shape);
  ValueId x = node.in(Op::x);
  if (mean != kNoSlot) x = b.sub(x, per_row(b, node.in(mean), shape));
  const ValueId normal = b.mul(x, rstd);
  const bool weighted = !absent(node, Op::weight);
  const ValueId h = weighted ? b.mul(dy, per_column(b, node.in(Op::weight), shape)) : dy;
  const ValueId along = per_row(b, row_mean(b, b.mul(h, normal)), shape);
  const ValueId rest = mean != kNoSlot ? b.sub(h, per_row(b, row_mean(b, h), shape)) : h;
  Values results{b.mul(rstd, b.sub(rest, b.mul(normal, along)))};
  if (weighted) results.push_back(b.reduce_sum(b.mul(dy, normal), {0}));
  if (weighted && mean != kNoSlot) results.push_back(b.reduce_sum(dy, {0}));
  return results;
}

template <typename Op>
constexpr InplacePair kInplaceAddend[] = {{Op::dx, Op::addend}};

template <OpCode C, OpCode Gradient, typename Op>
constexpr OpDef norm(ScaleFn scale, CostFn cost) {
  return define(C, {.infer = infer_norm<C, Op>,
                    .vjp = vjp_norm<Gradient, Op>,
                    .decompose = decompose_norm,
                    .scale = scale,
                    .cost = cost,
                    .scales = kScaleOfX<Op>});
}
template <OpCode C, typename Op>
constexpr OpDef norm_grad(ScaleFn scale, CostFn cost) {
  return define(C, {.infer = infer_norm_grad<C, Op>,
                    .decompose = decompose_norm_grad<Op>,
                    .scale = scale,
                    .cost = cost,
                    .inplace = kInplaceAddend<Op>,
                    .scales = kScaleOfX<Op>});
}

}  // namespace

ValueId emit_known(Builder& b, const Node& node) {
  const NormSlots& at = op_def(node.op).norm;
  return emit_normalized(b, node, emit_f32(b, node),
                         {.mean = node.in(at.known_mean), .rstd = node.in(at.known_rstd)});
}

namespace scale {
namespace {

// The operand, or a one where it is absent: a norm's weight.
Scaled weight_of(const ScaleCall& call, size_t slot) {
  return has(call, slot) ? call[slot] : Scaled{};
}

// eps beside a mean square of data: eps / Xs^2, finite in f32.
NormAttrs with_eps(const ScaleCall& call, int x_log2) {
  NormAttrs attrs = std::get<NormAttrs>(call.node.attrs);
  attrs.eps = std::min(std::ldexp(attrs.eps, -2 * x_log2), static_cast<double>(FLT_MAX));
  return attrs;
}

// Gradients of a norm. That of x: as dy w / x; the addend joins at that scale. The statistics are
// taken at x's scale as it is now, a factor included: normalized values and dx's data are then the
// same as without scales.
template <typename G>
Scales norm_gradients(Scaler& s, const ScaleCall& call) {
  const Scaled &dy = call[G::dy], &x = call[G::x], &rstd = call[G::rstd];
  const Scaled w = weight_of(call, G::weight);
  const ValueId factor = s.quotient(s.multiplier(0, dy.factor, w.factor), x.factor);
  Scaled dx =
      s.made(kNoValue, dy.log2 + w.log2 - x.log2, dy.predicted + w.predicted - x.predicted, factor);
  Values data = call.data();
  const ValueId to_x = s.multiplier(rstd.log2 + x.log2, rstd.factor, x.factor);
  if (to_x != kNoValue) data[G::rstd] = s.b.rescale(rstd.data, to_x);
  if (const SlotId mean = op_def(call.node.op).norm.mean; mean != kNoSlot)
    data[mean] = s.to(call[mean], {x.log2, x.factor}).data;
  if (has(call, G::addend)) {
    data[G::addend] = s.to(call[G::addend], {dx.log2, factor}).data;
    dx.predicted = with_bias_predicted(dx, call[G::addend]);
  }
  const auto y = s.b.emit(call.node.op, with_eps(call, x.log2), data);
  dx.data = y[G::dx];
  Scales results = {finished(s, call, dx)};
  const double rows = rows_of(call);
  const size_t n_own = op_def(call.node.op).own_results();  // not of amaxes
  for (size_t i = G::dweight; i < std::min(y.size(), n_own); ++i)
    results.push_back(s.made(y[i], dy.log2, dy.predicted + half_log2(rows), dy.factor));
  return results;
}

}  // namespace

// The factor of x is taken out: eps is no operand.
Scales rms_norm(Scaler& s, const ScaleCall& call) {
  const Scaled x = s.without_factor(call[RmsNorm::x]), w = weight_of(call, RmsNorm::weight);
  const auto y = s.b.emit(OpCode::rms_norm, with_eps(call, x.log2), {x.data, w.data});
  return {finished(s, call, s.made(y[RmsNorm::y], w.log2, w.predicted, w.factor)),
          s.made(y[RmsNorm::rstd], -x.log2, -x.predicted)};
}

Scales rms_norm_grad(Scaler& s, const ScaleCall& call) {
  return norm_gradients<RmsNormGrad>(s, call);
}

Scales layer_norm(Scaler& s, const ScaleCall& call) {
  const Scaled x = s.without_factor(call[LayerNorm::x]);
  Scaled w = weight_of(call, LayerNorm::weight);
  Values data = {x.data, w.data};
  if (has(call, LayerNorm::bias)) {
    const Scaled& bias = call[LayerNorm::bias];
    const Scale scale = with_bias(s, w, bias);
    const double predicted = with_bias_predicted(w, bias);
    w = s.to(w, scale);
    w.predicted = predicted;
    data = {x.data, w.data, s.to(bias, scale).data};
  }
  const auto y = s.b.emit(OpCode::layer_norm, with_eps(call, x.log2), data);
  return {finished(s, call, s.made(y[LayerNorm::y], w.log2, w.predicted, w.factor)),
          s.made(y[LayerNorm::mean], x.log2, x.predicted),
          s.made(y[LayerNorm::rstd], -x.log2, -x.predicted)};
}

Scales layer_norm_grad(Scaler& s, const ScaleCall& call) {
  return norm_gradients<LayerNormGrad>(s, call);
}

}  // namespace scale

constinit const OpDef defs::rms_norm =
    norm<OpCode::rms_norm, OpCode::rms_norm_grad, RmsNorm>(scale::rms_norm, cost_per_result<4>);
constinit const OpDef defs::rms_norm_grad =
    norm_grad<OpCode::rms_norm_grad, RmsNormGrad>(scale::rms_norm_grad, cost_per_result<9>);
constinit const OpDef defs::layer_norm =
    norm<OpCode::layer_norm, OpCode::layer_norm_grad, LayerNorm>(scale::layer_norm,
                                                                 cost_per_result<7>);
constinit const OpDef defs::layer_norm_grad =
    norm_grad<OpCode::layer_norm_grad, LayerNormGrad>(scale::layer_norm_grad, cost_per_result<12>);

}  // namespace octet::ops
