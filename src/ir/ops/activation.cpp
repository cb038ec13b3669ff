// gated_act: y = silu(gate) * up, silu(x) = x * logistic(x) (SwiGLU, Shazeer 2020).
// gelu (Hendrycks & Gimpel 2016): erf: x/2 (1 + erf(x / sqrt 2)); tanh: x/2 (1 + tanh(sqrt(2/pi) (x
// + 0.044715 x^3))).
#include <cmath>
#include <numbers>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

constexpr double kTanhFactor = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kTanhCubic = 0.044715;

template <OpCode C>
Results infer_gated(const Attrs& attrs, Types in) {
  const auto op = op_def(C).name;
  const bool gradient = op_def(C).is_gradient;
  const TensorType& gate = in[gradient ? 1 : 0];
  need_float(op, "gate", gate);
  need_float(op, "up", in[gradient ? 2 : 1], gate.shape);
  if (!gradient) return with_amax_results(C, attrs, {real(gate.shape)});
  need_float(op, "dy", in[0], gate.shape);
  return with_amax_results(C, attrs, {real(gate.shape), real(gate.shape)});
}

template <OpCode C>
Results infer_gelu(const Attrs& attrs, Types in) {
  const auto op = op_def(C).name;
  const bool gradient = op_def(C).is_gradient;
  need_float(op, gradient ? "dy" : "x", in[0]);
  if (gradient) need_float(op, "x", in[1], in[0].shape);
  return with_amax_results(C, attrs, {real(in[0].shape)});
}

Values vjp_gated_act(Builder& b, const VjpCall& call) {
  const Node& n = call.node;
  return b.emit(OpCode::gated_act_grad, n.attrs, {call.dresults[0], n.operands[0], n.operands[1]});
}

Values vjp_gelu(Builder& b, const VjpCall& call) {
  const Node& n = call.node;
  return b.emit(OpCode::gelu_grad, n.attrs, {call.dresults[0], n.operands[0]});
}

Values decompose_gated_act(Builder& b, const Node& node) {
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId gate = node.operands[0];
  return {b.mul(b.mul(gate, b.unary(OpCode::logistic, gate)), node.operands[1])};
}

// With s = logistic(gate): silu' = s * (1 + gate * (1 - s)).
Values decompose_gated_act_grad(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId dy = node.operands[0];
  const ValueId gate = node.operands[1];
  const ValueId s = b.unary(OpCode::logistic, gate);
  const ValueId rest = b.sub(b.fill_like(s, 1), s);
  const ValueId slope = b.mul(s, b.plus(b.mul(gate, rest), 1));
  return {b.mul(b.mul(dy, node.operands[2]), slope), b.mul(dy, b.mul(gate, s))};
}

// The factor of x/2, less 1: erf(x / sqrt 2) or the hyperbolic tangent.
ValueId gelu_curve(Builder& b, ValueId x, GeluKind kind) {
  if (kind == GeluKind::erf) return b.unary(OpCode::erf, b.scaled(x, 1 / std::numbers::sqrt2));
  const ValueId cubic = b.plus(b.scaled(b.unary(OpCode::square, x), kTanhCubic), 1);
  return b.unary(OpCode::tanh, b.mul(b.scaled(x, kTanhFactor), cubic));
}

Values decompose_gelu(Builder& b, const Node& node) {
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId x = node.operands[0];
  const ValueId curve = gelu_curve(b, x, std::get<GeluAttrs>(node.attrs).kind);
  return {b.mul(b.scaled(x, 0.5), b.plus(curve, 1))};
}

// d/dx [x/2 (1 + c(x))] = (1 + c) / 2 + x/2 c'
Values decompose_gelu_grad(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  if (reads_quantized(b.graph(), node)) return emit_dequantized(b, node);
  const ValueId x = node.operands[1];
  const GeluKind kind = std::get<GeluAttrs>(node.attrs).kind;
  const ValueId curve = gelu_curve(b, x, kind);
  const ValueId square = b.unary(OpCode::square, x);
  ValueId slope = kNoValue;
  if (kind == GeluKind::erf) {
    const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    slope = b.scaled(b.unary(OpCode::exp, b.scaled(square, -0.5)), factor);
  } else {
    const ValueId inner = b.scaled(b.plus(b.scaled(square, 3 * kTanhCubic), 1), kTanhFactor);
    slope = b.mul(b.sub(b.fill_like(x, 1), b.unary(OpCode::square, curve)), inner);
  }
  const ValueId whole = b.add(b.scaled(b.plus(curve, 1), 0.5), b.mul(b.scaled(x, 0.5), slope));
  return {b.mul(node.operands[0], whole)};
}

constexpr InplacePair kInplaceGradient[] = {
    {.result = 0, .operand = 0}, {.result = 0, .operand = 1}, {.result = 0, .operand = 2},
    {.result = 1, .operand = 0}, {.result = 1, .operand = 1}, {.result = 1, .operand = 2}};

}  // namespace

namespace scale {
namespace {

// Predictions are made in doubles, of both kinds of GELU by erf.
double silu(double x) {
  return x / (1 + std::exp(-x));
}
double silu_slope(double x) {
  const double p = 1 / (1 + std::exp(-x));
  return p * (1 + x * (1 - p));
}
double gelu_value(double x) {
  return 0.5 * x * (1 + std::erf(x * 0.70710678118654752));
}
double gelu_slope(double x) {
  return 0.5 * (1 + std::erf(x * 0.70710678118654752)) +
         x * std::exp(-0.5 * x * x) * 0.39894228040143268;
}

}  // namespace

Scales gated_act(Scaler& s, const ScaleCall& call) {
  const Scaled &gate = call[GatedAct::gate], &up = call[GatedAct::up];
  const ValueId y = s.b.emit1(OpCode::gated_act, call.node.attrs, {gate.data, up.data});
  const double predicted = up.predicted + rms_of(silu, gate.predicted);
  return {finished(s, call, s.made(y, up.log2, predicted, up.factor))};
}

Scales gated_act_grad(Scaler& s, const ScaleCall& call) {
  const Scaled &dy = call[GatedActGrad::dy], &gate = call[GatedActGrad::gate];
  const Scaled& up = call[GatedActGrad::up];
  const auto y = s.b.emit(OpCode::gated_act_grad, call.node.attrs, {dy.data, gate.data, up.data});
  const double slope = rms_of(silu_slope, gate.predicted), value = rms_of(silu, gate.predicted);
  return {s.made(y[GatedActGrad::dgate], dy.log2 + up.log2, dy.predicted + up.predicted + slope,
                 s.multiplier(0, dy.factor, up.factor)),
          s.made(y[GatedActGrad::dup], dy.log2, dy.predicted + value, dy.factor)};
}

Scales gelu(Scaler& s, const ScaleCall& call) {
  const Scaled& x = call[Gelu::x];
  return {s.made(s.b.emit1(OpCode::gelu, call.node.attrs, {x.data}), 0,
                 rms_of(gelu_value, x.predicted))};
}

Scales gelu_grad(Scaler& s, const ScaleCall& call) {
  const Scaled &dy = call[GeluGrad::dy], &x = call[GeluGrad::x];
  const ValueId y = s.b.emit(OpCode::gelu_grad, call.node.attrs, {dy.data, x.data})[GeluGrad::dx];
  return {finished(s, call,
                   s.made(y, dy.log2, dy.predicted + rms_of(gelu_slope, x.predicted), dy.factor))};
}

}  // namespace scale

constinit const OpDef defs::gated_act =
    define(OpCode::gated_act, {.infer = infer_gated<OpCode::gated_act>,
                               .vjp = vjp_gated_act,
                               .decompose = decompose_gated_act,
                               .scale = scale::gated_act,
                               .cost = cost_per_result<6>,
                               .inplace = kInplaceEither,
                               .scales = kScalesOfGate<GatedAct>});
constinit const OpDef defs::gated_act_grad =
    define(OpCode::gated_act_grad, {.infer = infer_gated<OpCode::gated_act_grad>,
                                    .decompose = decompose_gated_act_grad,
                                    .scale = scale::gated_act_grad,
                                    .cost = cost_per_result<12>,
                                    .inplace = kInplaceGradient,
                                    .scales = kScalesOfGate<GatedActGrad>});
constinit const OpDef defs::gelu = define(OpCode::gelu, {.infer = infer_gelu<OpCode::gelu>,
                                                         .vjp = vjp_gelu,
                                                         .decompose = decompose_gelu,
                                                         .scale = scale::gelu,
                                                         .cost = cost_per_result<8>,
                                                         .inplace = kInplaceFirst,
                                                         .scales = kScaleOfX<Gelu>});
constinit const OpDef defs::gelu_grad =
    define(OpCode::gelu_grad, {.infer = infer_gelu<OpCode::gelu_grad>,
                               .decompose = decompose_gelu_grad,
                               .scale = scale::gelu_grad,
                               .cost = cost_per_result<15>,
                               .inplace = kInplaceEither,
                               .scales = kScaleOfX<GeluGrad>});

}  // namespace octet::ops
