#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "ir/ops/axis_scales.h"
#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {

Scaled finished(Scaler& s, const ScaleCall& call, const Scaled& y) {
  return call.wants_unscaled ? s.unscaled(y) : y;
}

double rows_of(const ScaleCall& call) {
  return static_cast<double>(std::max<int64_t>(1, call.shape(0)[0]));
}

bool has(const ScaleCall& call, size_t slot) {
  return slot < call.in.size() && call.in[slot].data != kNoValue;
}

Scale with_bias(Scaler& s, const Scaled& x, const Scaled& bias) {
  constexpr int kMaxBias = 10;
  if (bias.is_any) return {x.log2, x.factor};
  return s.largest({{x.log2, x.factor}, {s.choose(bias.predicted) - kMaxBias, bias.factor}});
}

double with_bias_predicted(const Scaled& x, const Scaled& bias) {
  return x.factor == bias.factor ? root_sum(x.predicted, bias.predicted) : x.predicted;
}

namespace {

double harmonic_mean_square(double keys) {
  return (std::log(keys) + 0.5772) / keys;
}

// log2 of the RMS of a mean over the keys that a query sees, of independent values: probabilities
// are nearly equal, as at initialisation.
double averaging(const AttentionAttrs& a) {
  auto keys = static_cast<double>(a.kv_len);
  if (a.window > 0) keys = std::min(keys, static_cast<double>(a.window));
  return a.mask == AttentionMask::causal
             ? 0.5 * std::log2(std::min(1.0, harmonic_mean_square(keys)))
             : -half_log2(keys);
}

// The keys' data times both run-time factors.
ValueId key_data(Scaler& s, const Scaled& q, const Scaled& k) {
  const ValueId factor = s.multiplier(0, q.factor, k.factor);
  return factor == kNoValue ? k.data : s.b.rescale(k.data, factor);
}

}  // namespace

// Independent factors. The multiplication by a power of two happens in the accumulator.
Scales gemm(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<GemmAttrs>(call.node.attrs);
  if (has(call, Gemm::scale_y))
    throw Error(ErrorCode::invalid_argument, "[scalify] expected a gemm without scale_y, got one");
  const auto k = static_cast<double>(call.shape(0)[attrs.trans_a ? 0 : 1]);
  Scaled a = call[Gemm::a], b = call[Gemm::b];
  const ValueId rows = take_axis_factor(s, a, attrs.trans_a);
  const ValueId columns = take_axis_factor(s, b, attrs.trans_b);
  if (std::abs(a.log2 + b.log2) > 126) a = s.at(a, 0), b = s.at(b, 0);  // f32 has no such scale
  Scaled ab = {.log2 = a.log2 + b.log2,
               .factor = s.multiplier(0, a.factor, b.factor),
               .predicted = a.predicted + b.predicted + (k > 0 ? half_log2(k) : 0)};
  // Scales that the graph itself has join it.
  for (const SlotId slot : {Gemm::scale_a, Gemm::scale_b}) {
    if (!has(call, slot)) continue;
    ab.log2 += call[slot].log2, ab.predicted += call[slot].predicted;
    ab.factor = s.multiplier(0, ab.factor, call[slot].factor);
  }
  const bool adds = has(call, Gemm::c);
  const Scaled c = adds ? call[Gemm::c] : Scaled{};
  double predicted = ab.predicted;
  if (adds) predicted = root_sum(predicted, c.predicted);
  Scale scale = {s.choose(predicted), ab.factor};
  if (adds && ab.factor != c.factor)
    scale = s.largest({{s.choose(ab.predicted), ab.factor}, {s.choose(c.predicted), c.factor}});
  if (call.wants_unscaled && rows == kNoValue && columns == kNoValue) scale = {};
  const ValueId given = has(call, Gemm::scale_a) ? call[Gemm::scale_a].data : kNoValue;
  Values data = {a.data, b.data, adds ? s.to(c, scale).data : kNoValue,
                 s.multiplier(ab.log2 - scale.log2, s.quotient(ab.factor, scale.factor), given)};
  if (has(call, Gemm::scale_b)) data.push_back(call[Gemm::scale_b].data);
  const Scaled y =
      s.made(s.b.emit(OpCode::gemm, attrs, data)[0], scale.log2, predicted, scale.factor);
  return {finished(s, call, with_axis_factors(s, y, rows, columns))};
}

// The op's own factor takes the scales that are known before the step.
Scales batched_gemm(Scaler& s, const ScaleCall& call) {
  using S = BatchedGemm;
  auto attrs = std::get<BatchedGemmAttrs>(call.node.attrs);
  const auto k = static_cast<double>(call.shape(S::a)[attrs.trans_a ? 1 : 2]);
  Scaled a = call[S::a], b = call[S::b];
  if (std::abs(a.log2 + b.log2) > 126) a = s.at(a, 0), b = s.at(b, 0);  // f32 has no such scale
  const double size = attrs.factor == 0 ? 0 : std::log2(std::fabs(attrs.factor));
  const double product = a.predicted + b.predicted + size + (k > 0 ? half_log2(k) : 0);
  const ValueId factor = s.multiplier(0, a.factor, b.factor);
  const bool adds = has(call, S::c);
  const double predicted = adds ? root_sum(product, call[S::c].predicted) : product;
  Scale scale = {call.wants_unscaled ? 0 : s.choose(predicted), factor};
  Values data = {a.data, b.data};
  // c joins in the op, at the product's factor.
  if (adds) data.push_back(s.to(call[S::c], scale).data);
  attrs.factor = std::ldexp(attrs.factor, a.log2 + b.log2 - scale.log2);
  return {s.made(s.b.emit1(OpCode::batched_gemm, attrs, data), scale.log2, predicted, factor)};
}

Scales bias_add(Scaler& s, const ScaleCall& call) {
  const Scaled &x = call[BiasAdd::x], &bias = call[BiasAdd::bias];
  const Scale scale = call.wants_unscaled ? Scale{} : with_bias(s, x, bias);
  const ValueId y =
      s.b.emit1(OpCode::bias_add, NoAttrs{}, {s.to(x, scale).data, s.to(bias, scale).data});
  return {s.made(y, scale.log2, with_bias_predicted(x, bias), scale.factor)};
}

Scales column_sum(Scaler& s, const ScaleCall& call) {
  const Scaled& x = call[0];
  const double rows = rows_of(call);
  return {s.made(s.b.unary(OpCode::column_sum, x.data), x.log2, x.predicted + half_log2(rows),
                 x.factor)};
}

// Scores take both scales: constant ones into the softmax's own factor, those of the run time into
// k, the smaller operand. Their product is what scores are as large as.
Scales attention(Scaler& s, const ScaleCall& call) {
  auto attrs = std::get<AttentionAttrs>(call.node.attrs);
  const double law = averaging(attrs);
  const Scaled &q = call[Attention::q], &k = call[Attention::k], &v = call[Attention::v];
  attrs.scale = std::ldexp(attrs.scale, q.log2 + k.log2);
  Values data = call.data();
  data[Attention::k] = key_data(s, q, k);
  const auto y = s.b.emit(OpCode::attention, attrs, data);
  return {finished(s, call, s.made(y[Attention::o], v.log2, v.predicted + law, v.factor)),
          s.made(y[Attention::lse], 0, 0)};
}

// dv = P^T dO; dS = P (dO V^T - D) scale, D of dO and O; dq = dS k; dk = dS^T q; the bias's is dS /
// scale, summed over what it repeats.
Scales attention_grad(Scaler& s, const ScaleCall& call) {
  using G = AttentionGrad;
  auto attrs = std::get<AttentionAttrs>(call.node.attrs);
  const Scaled &dout = call[G::dout], &q = call[G::q], &k = call[G::k], &v = call[G::v];
  const double law = averaging(attrs);
  const double ds = dout.predicted + v.predicted + std::log2(attrs.scale) +
                    half_log2(static_cast<double>(attrs.head_dim)) + law;
  const double unscaled = ds - std::log2(attrs.scale);
  const int64_t n_groups = attrs.heads / attrs.kv_heads;
  const double group = half_log2(static_cast<double>(n_groups));
  attrs.scale = std::ldexp(attrs.scale, q.log2 + k.log2);
  Values data = call.data();
  data[G::k] = key_data(s, q, k);
  data[G::o] = s.to(call[G::o], {v.log2, v.factor}).data;
  data[G::lse] = s.unscaled(call[G::lse]).data;
  const auto y = s.b.emit(OpCode::attention_grad, attrs, data);
  const int log2 = dout.log2 + v.log2;
  const ValueId factor = s.multiplier(0, dout.factor, v.factor);
  Scales results = {
      s.made(y[G::dq], log2 - q.log2, ds + k.predicted, s.quotient(factor, q.factor)),
      s.made(y[G::dk], log2 - k.log2, ds + q.predicted + group, s.multiplier(0, factor, q.factor)),
      s.made(y[G::dv], dout.log2, dout.predicted + law + group, dout.factor)};
  if (attrs.bias_gradient) {
    const auto scores = static_cast<double>(attrs.batch * attrs.heads * attrs.q_len * attrs.kv_len);
    const double summed = scores / static_cast<double>(n_elems(call.shape(G::bias)));
    results.push_back(s.made(y[G::dbias], log2, unscaled + half_log2(summed), factor));
  }
  return results;
}

Scales cross_entropy(Scaler& s, const ScaleCall& call) {
  const auto y = s.b.emit(OpCode::cross_entropy, call.node.attrs, call.data());
  return {s.made(y[CrossEntropy::loss], 0, 0), s.made(y[CrossEntropy::lse], 0, 0),
          s.made(y[CrossEntropy::nll], 0, 0)};
}

// A row is 1 / V but for its label, V the vocabulary, times what a smoothed label leaves, divided
// by n tokens: the scale that the result wants is given to dloss.
Scales cross_entropy_grad(Scaler& s, const ScaleCall& call) {
  const Shape& logits = call.shape(CrossEntropyGrad::logits);
  const auto n = static_cast<double>(std::max<int64_t>(1, logits[0]));
  const auto v = static_cast<double>(std::max<int64_t>(2, logits[1]));
  const Scaled& dloss = call[CrossEntropyGrad::dloss];
  const double left = std::log2(1 - std::get<CrossEntropyAttrs>(call.node.attrs).smoothing);
  const double predicted = dloss.predicted + half_log2(v - 1) - std::log2(v) - std::log2(n) + left;
  const Scale scale =
      call.wants_unscaled ? Scale{} : Scale{.log2 = s.choose(predicted), .factor = dloss.factor};
  Values data = call.data();
  data[CrossEntropyGrad::dloss] = s.to(dloss, scale).data;
  data[CrossEntropyGrad::lse] = s.unscaled(call[CrossEntropyGrad::lse]).data;
  return {s.made(s.b.emit1(OpCode::cross_entropy_grad, call.node.attrs, data), scale.log2,
                 predicted, scale.factor)};
}

// Norm of the gradients themselves.
Scales global_norm(Scaler& s, const ScaleCall& call) {
  Values data;
  for (const Scaled& x : call.in) data.push_back(s.unscaled(x).data);
  Scales results;
  for (const ValueId y : s.b.emit(OpCode::global_norm, NoAttrs{}, data))
    results.push_back(s.made(y, 0, 0));
  return results;
}

// The gradient's scale joins the factor that it is multiplied with anyway; weight and states are
// values, and stay so.
Scales update(Scaler& s, const ScaleCall& call) {
  const bool is_adamw = call.node.op == OpCode::adamw_step;
  const size_t g = is_adamw ? size_t{AdamwStep::g} : size_t{Update::g};
  const size_t grad_scale = is_adamw ? size_t{AdamwStep::grad_scale} : size_t{Update::grad_scale};
  Values data;
  for (size_t i = 0; i < call.in.size(); ++i)
    data.push_back(i == g ? call[i].data : s.unscaled(call[i]).data);
  if (!call[g].is_any)
    data[grad_scale] = s.multiplier(call[g].log2, call[g].factor, data[grad_scale]);
  Scales results;
  for (const ValueId y : s.b.emit(call.node.op, call.node.attrs, data))
    results.push_back(s.made(y, 0, results.empty() ? call[0].predicted : 0));
  return results;
}

}  // namespace octet::ops::scale
