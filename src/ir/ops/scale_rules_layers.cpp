#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {
namespace {

// As the readers want it.
Scaled finished(Scaler& s, const ScaleCall& call, const Scaled& y) {
  return call.wants_plain ? s.plain(y) : y;
}

double rows_of(const ScaleCall& call) {
  return static_cast<double>(std::max<int64_t>(1, call.shape(0)[0]));
}

bool has(const ScaleCall& call, size_t slot) {
  return slot < call.in.size() && call.in[slot].data != kNoValue;
}
// The operand without a run-time factor, or a one where it is absent: a norm's weight.
Scaled weight_of(Scaler& s, const ScaleCall& call, size_t slot) {
  return has(call, slot) ? s.without_factor(call[slot]) : Scaled{};
}

// eps beside a mean square of data: eps / Xs^2, finite in f32.
NormAttrs with_eps(const ScaleCall& call, int x_log2) {
  NormAttrs attrs = std::get<NormAttrs>(call.node.attrs);
  attrs.eps = std::min(std::ldexp(attrs.eps, -2 * x_log2), static_cast<double>(FLT_MAX));
  return attrs;
}

// Gradient of a norm's x: as dy w / x; the addend joins at that scale.
struct NormGradient {
  Scaled dx;
  Values data;
};
NormGradient norm_gradient(Scaler& s, const ScaleCall& call, const Scaled& w, size_t addend) {
  const Scaled &dy = call[0], &x = call[1];
  NormGradient result{.dx = s.made(kNoValue, dy.log2 + w.log2 - x.log2,
                                   dy.predicted + w.predicted - x.predicted, dy.factor),
                      .data = call.data()};
  if (!has(call, addend)) return result;
  result.data[addend] = s.at(call[addend], result.dx.log2).data;
  result.dx.predicted = root_sum(result.dx.predicted, call[addend].predicted);
  return result;
}

double harmonic_mean_square(double keys) {
  return (std::log(keys) + 0.5772) / keys;
}

// log2 of the RMS of a mean over the keys that a query sees, of independent values: probabilities
// are nearly equal, as at initialisation.
double averaging(const AttentionAttrs& a) {
  double keys = static_cast<double>(a.capacity > 0 ? a.capacity : a.seq);
  if (a.window > 0) keys = std::min(keys, static_cast<double>(a.window));
  return a.causal ? 0.5 * std::log2(std::min(1.0, harmonic_mean_square(keys))) : -half_log2(keys);
}

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

// Independent factors. The multiplication by a power of two happens in the accumulator.
Scales gemm(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<GemmAttrs>(call.node.attrs);
  const auto k = static_cast<double>(call.shape(0)[attrs.trans_a ? 0 : 1]);
  Scaled a = call[Gemm::a], b = call[Gemm::b];
  double predicted = a.predicted + b.predicted + (k > 0 ? half_log2(k) : 0);
  const bool adds = has(call, Gemm::c);
  if (adds) predicted = root_sum(predicted, call[Gemm::c].predicted);
  const int log2 = call.wants_plain ? 0 : s.choose(predicted);
  const int shift = a.log2 + b.log2 - log2;
  Values data = {a.data, b.data};
  ValueId factor = kNoValue;
  if (adds || call.wants_plain) {
    data.push_back(adds ? s.at(s.without_factor(call[Gemm::c]), log2).data : kNoValue);
    data.push_back(s.multiplier(shift, a.factor, b.factor));
  } else {
    data.push_back(kNoValue);
    data.push_back(s.multiplier(shift));
    factor = s.multiplier(0, a.factor, b.factor);
  }
  return {s.made(s.b.emit(OpCode::gemm, attrs, data)[0], log2, predicted, factor)};
}

Scales bias_add(Scaler& s, const ScaleCall& call) {
  Scaled x = s.without_factor(call[BiasAdd::x]), bias = s.without_factor(call[BiasAdd::bias]);
  if (call.wants_plain) x = s.at(x, 0);
  const double predicted = root_sum(x.predicted, bias.predicted);
  bias = s.at(bias, x.log2);
  return {s.made(s.b.emit1(OpCode::bias_add, NoAttrs{}, {x.data, bias.data}), x.log2, predicted)};
}

Scales column_sum(Scaler& s, const ScaleCall& call) {
  const Scaled& x = call[0];
  const double rows = rows_of(call);
  return {s.made(s.b.unary(OpCode::column_sum, x.data), x.log2, x.predicted + half_log2(rows),
                 x.factor)};
}

Scales rms_norm(Scaler& s, const ScaleCall& call) {
  const Scaled x = s.without_factor(call[RmsNorm::x]), w = weight_of(s, call, RmsNorm::weight);
  const auto y = s.b.emit(OpCode::rms_norm, with_eps(call, x.log2), {x.data, w.data});
  return {finished(s, call, s.made(y[RmsNorm::y], w.log2, w.predicted)),
          s.made(y[RmsNorm::rstd], -x.log2, -x.predicted)};
}

Scales rms_norm_grad(Scaler& s, const ScaleCall& call) {
  const Scaled w = weight_of(s, call, RmsNormGrad::weight);
  const Scaled& dy = call[RmsNormGrad::dy];
  NormGradient g = norm_gradient(s, call, w, RmsNormGrad::addend);
  const auto y = s.b.emit(OpCode::rms_norm_grad, with_eps(call, call[RmsNormGrad::x].log2), g.data);
  g.dx.data = y[RmsNormGrad::dx];
  Scales results = {finished(s, call, g.dx)};
  if (y.size() > RmsNormGrad::dweight && y[RmsNormGrad::dweight] != kNoValue) {
    const double rows = rows_of(call);
    results.push_back(
        s.made(y[RmsNormGrad::dweight], dy.log2, dy.predicted + half_log2(rows), dy.factor));
  }
  return results;
}

Scales layer_norm(Scaler& s, const ScaleCall& call) {
  const Scaled x = s.without_factor(call[LayerNorm::x]), w = weight_of(s, call, LayerNorm::weight);
  Values data = {x.data, w.data};
  double predicted = w.predicted;
  if (has(call, LayerNorm::bias)) {
    const Scaled bias = s.at(s.without_factor(call[LayerNorm::bias]), w.log2);
    predicted = root_sum(predicted, bias.predicted);
    data.push_back(bias.data);
  }
  const auto y = s.b.emit(OpCode::layer_norm, with_eps(call, x.log2), data);
  return {finished(s, call, s.made(y[LayerNorm::y], w.log2, predicted)),
          s.made(y[LayerNorm::mean], x.log2, x.predicted),
          s.made(y[LayerNorm::rstd], -x.log2, -x.predicted)};
}

Scales layer_norm_grad(Scaler& s, const ScaleCall& call) {
  const Scaled w = weight_of(s, call, LayerNormGrad::weight);
  const Scaled& dy = call[LayerNormGrad::dy];
  NormGradient g = norm_gradient(s, call, w, LayerNormGrad::addend);
  const auto y =
      s.b.emit(OpCode::layer_norm_grad, with_eps(call, call[LayerNormGrad::x].log2), g.data);
  g.dx.data = y[LayerNormGrad::dx];
  Scales results = {finished(s, call, g.dx)};
  const double rows = rows_of(call);
  for (const SlotId slot : {LayerNormGrad::dweight, LayerNormGrad::dbias}) {
    if (slot >= y.size()) break;
    results.push_back(s.made(y[slot], dy.log2, dy.predicted + half_log2(rows), dy.factor));
  }
  return results;
}

// Scores take both scales into the softmax's own factor.
Scales attention(Scaler& s, const ScaleCall& call) {
  auto attrs = std::get<AttentionAttrs>(call.node.attrs);
  const double law = averaging(attrs);
  const Scaled q = s.without_factor(call[Attention::q]), k = s.without_factor(call[Attention::k]);
  const Scaled& v = call[Attention::v];
  attrs.scale = std::ldexp(attrs.scale, q.log2 + k.log2);
  Values data = call.data();
  data[Attention::q] = q.data, data[Attention::k] = k.data;
  const auto y = s.b.emit(OpCode::attention, attrs, data);
  return {finished(s, call, s.made(y[Attention::o], v.log2, v.predicted + law, v.factor)),
          s.made(y[Attention::lse], 0, 0)};
}

// dv = P^T dO; dS = P (dO V^T - D) scale, D of dO and O; dq = dS k; dk = dS^T q.
Scales attention_grad(Scaler& s, const ScaleCall& call) {
  auto attrs = std::get<AttentionAttrs>(call.node.attrs);
  const Scaled& dout = call[AttentionGrad::dout];
  const Scaled q = s.without_factor(call[AttentionGrad::q]);
  const Scaled k = s.without_factor(call[AttentionGrad::k]);
  const Scaled v = s.without_factor(call[AttentionGrad::v]);
  const Scaled o = s.at(s.without_factor(call[AttentionGrad::o]), v.log2);
  const double law = averaging(attrs);
  const double ds = dout.predicted + v.predicted + std::log2(attrs.scale) +
                    half_log2(static_cast<double>(attrs.head_dim)) + law;
  const double group = half_log2(static_cast<double>(attrs.heads / attrs.kv_heads));
  attrs.scale = std::ldexp(attrs.scale, q.log2 + k.log2);
  Values data = call.data();
  data[AttentionGrad::q] = q.data, data[AttentionGrad::k] = k.data;
  data[AttentionGrad::v] = v.data, data[AttentionGrad::o] = o.data;
  const auto y = s.b.emit(OpCode::attention_grad, attrs, data);
  const int log2 = dout.log2 + v.log2;
  return {s.made(y[AttentionGrad::dq], log2 - q.log2, ds + k.predicted, dout.factor),
          s.made(y[AttentionGrad::dk], log2 - k.log2, ds + q.predicted + group, dout.factor),
          s.made(y[AttentionGrad::dv], dout.log2, dout.predicted + law + group, dout.factor)};
}

Scales gated_act(Scaler& s, const ScaleCall& call) {
  const Scaled &gate = call[GatedAct::gate], &up = call[GatedAct::up];
  const ValueId y = s.b.emit1(OpCode::gated_act, call.node.attrs, {gate.data, up.data});
  const double predicted = up.predicted + rms_of(silu, gate.predicted);
  return {finished(s, call, s.made(y, up.log2, predicted, up.factor))};
}

Scales gated_act_grad(Scaler& s, const ScaleCall& call) {
  const Scaled &dy = call[GatedActGrad::dy], &gate = call[GatedActGrad::gate];
  const Scaled up = s.without_factor(call[GatedActGrad::up]);
  const auto y = s.b.emit(OpCode::gated_act_grad, call.node.attrs, {dy.data, gate.data, up.data});
  const double slope = rms_of(silu_slope, gate.predicted), value = rms_of(silu, gate.predicted);
  return {s.made(y[GatedActGrad::dgate], dy.log2 + up.log2, dy.predicted + up.predicted + slope,
                 dy.factor),
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

Scales cross_entropy(Scaler& s, const ScaleCall& call) {
  const auto y = s.b.emit(OpCode::cross_entropy, call.node.attrs, call.data());
  return {s.made(y[CrossEntropy::loss], 0, 0), s.made(y[CrossEntropy::lse], 0, 0),
          s.made(y[CrossEntropy::nll], 0, 0)};
}

// A row is 1 / V but for its label, V the vocabulary, divided by n tokens: the scale that the
// result wants is given to dloss.
Scales cross_entropy_grad(Scaler& s, const ScaleCall& call) {
  const Shape& logits = call.shape(CrossEntropyGrad::logits);
  const auto n = static_cast<double>(std::max<int64_t>(1, logits[0]));
  const auto v = static_cast<double>(std::max<int64_t>(2, logits[1]));
  Scaled dloss = s.without_factor(call[CrossEntropyGrad::dloss]);
  const double predicted = dloss.predicted + half_log2(v - 1) - std::log2(v) - std::log2(n);
  dloss = s.at(dloss, call.wants_plain ? 0 : s.choose(predicted));
  Values data = call.data();
  data[CrossEntropyGrad::dloss] = dloss.data;
  return {
      s.made(s.b.emit1(OpCode::cross_entropy_grad, call.node.attrs, data), dloss.log2, predicted)};
}

}  // namespace octet::ops::scale
