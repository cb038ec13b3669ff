#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {
namespace {

ValueId emit(Scaler& s, const ScaleCall& call, Values data) {
  return s.b.emit1(call.node.op, call.node.attrs, std::move(data));
}

// log2 of the RMS up to which FP16 holds the addends of a sum with scale 1.
constexpr double kMostPlain = 10;

// The larger scale of those that have one.
int common_log2(const Scaled& a, const Scaled& b) {
  if (a.is_any) return b.log2;
  return b.is_any ? a.log2 : std::max(a.log2, b.log2);
}

double predicted_of(const Scaled& x) {
  return x.is_any ? -std::numeric_limits<double>::infinity() : x.predicted;
}

// Halves the scale's exponent, made even first.
Scaled even(Scaler& s, const Scaled& x) {
  const Scaled plain = s.without_factor(x);
  return plain.log2 % 2 == 0 ? plain : s.at(plain, plain.log2 - 1);
}

// The power of two that is next to a norm of x, a mean but for max; 1 where there is none.
ValueId norm_power(Builder& b, ValueId x, RescaleNorm norm) {
  const Shape shape = b.shape(x), axes = iota_axes(shape.size());
  const double mean = 1 / static_cast<double>(std::max<int64_t>(1, n_elems(shape)));
  ValueId size = kNoValue;
  if (norm == RescaleNorm::max) {
    size = b.reduce_max(b.unary(OpCode::abs, x), axes);
  } else if (norm == RescaleNorm::l1) {
    size = b.reduce_sum(b.scaled(b.unary(OpCode::abs, x), mean), axes);
  } else {
    const ValueId root_mean = b.scaled(x, std::sqrt(mean));
    size = b.unary(OpCode::sqrt, b.reduce_sum(b.unary(OpCode::square, root_mean), axes));
  }
  return b.unary(OpCode::power_of_two, size);
}

// Times a run-time factor, whose power goes into the scale.
Scaled times_factor(Builder& b, const Scaled& x, ValueId factor) {
  const ValueId inverse = b.div(b.fill({}, 1), factor);
  return {.data = b.emit1(OpCode::rescale, NoAttrs{}, {x.data, inverse}),
          .log2 = x.log2,
          .factor = x.factor == kNoValue ? factor : b.mul(x.factor, factor),
          .predicted = static_cast<double>(x.log2),  // near 1 now, whatever was predicted
          .is_any = x.is_any};
}

}  // namespace

Scales same(Scaler& s, const ScaleCall& call) {
  Scaled y = call[0];
  y.data = emit(s, call, call.data());
  return {y};
}

Scales of_values(Scaler& s, const ScaleCall& call) {
  return {s.made(emit(s, call, call.data()), 0, 0)};
}

// Independent addends. Of two run-time factors one is taken out.
Scales add(Scaler& s, const ScaleCall& call) {
  Scaled a = call[0], b = call[1];
  const bool shares = a.factor == b.factor || a.is_any || b.is_any;
  if (!shares) a = s.without_factor(a), b = s.without_factor(b);
  const double predicted = root_sum(predicted_of(a), predicted_of(b));
  const bool all_any = a.is_any && b.is_any;
  // The larger addend keeps its scale, if the sum is within [1/2, 2] there.
  const Scaled& larger = predicted_of(a) >= predicted_of(b) ? a : b;
  const bool keeps = s.rounding() == ScaleRounding::predicted && s.carries() &&
                     std::fabs(predicted - larger.log2) <= 1;
  const int chosen = keeps ? larger.log2 : s.choose(predicted);
  // A difference of large values may be small: they meet at a scale that holds them both.
  const bool fits_plain = predicted_of(larger) < kMostPlain;
  const int log2 = (call.wants_plain && fits_plain) || all_any ? 0 : chosen;
  const ValueId factor = a.is_any ? b.factor : a.factor;
  a = s.at(a, log2), b = s.at(b, log2);
  Scaled y = s.made(emit(s, call, {a.data, b.data}), log2, predicted, factor);
  y.is_any = all_any;
  return {y};
}

Scales mul(Scaler& s, const ScaleCall& call) {
  Scaled a = call[0], b = call[1];
  if (a.factor != kNoValue && b.factor != kNoValue) b = s.without_factor(b);
  const ValueId factor = a.factor != kNoValue ? a.factor : b.factor;
  Scaled y =
      s.made(emit(s, call, {a.data, b.data}), a.log2 + b.log2, a.predicted + b.predicted, factor);
  y.is_any = a.is_any || b.is_any;
  return {y};
}

Scales div(Scaler& s, const ScaleCall& call) {
  const Scaled a = call[0], b = s.without_factor(call[1]);
  Scaled y =
      s.made(emit(s, call, {a.data, b.data}), a.log2 - b.log2, a.predicted - b.predicted, a.factor);
  y.is_any = a.is_any;
  return {y};
}

// A comparison with 0 says the same at every scale.
Scales compare(Scaler& s, const ScaleCall& call) {
  const bool any = call[0].is_any || call[1].is_any;
  const int log2 = any ? common_log2(call[0], call[1]) : 0;
  Values data;
  for (const Scaled& x : call.in) data.push_back(s.at(s.without_factor(x), log2).data);
  return {s.made(emit(s, call, std::move(data)), 0, 0)};
}

Scales largest(Scaler& s, const ScaleCall& call) {
  Scaled most = {.is_any = true};
  std::vector<Scaled> parts;
  for (const Scaled& x : call.in) {
    parts.push_back(s.without_factor(x));
    const int log2 = common_log2(most, x);
    most.predicted = std::max(most.is_any ? x.predicted : most.predicted, x.predicted);
    most.log2 = log2;
    most.is_any = most.is_any && x.is_any;
  }
  Values data;
  for (const Scaled& x : parts) data.push_back(s.at(x, most.log2).data);
  Scaled y = s.made(emit(s, call, std::move(data)), most.log2, most.predicted);
  y.is_any = most.is_any;
  return {y};
}

Scales select(Scaler& s, const ScaleCall& call) {
  Scaled yes = s.without_factor(call[Select::yes]), no = s.without_factor(call[Select::no]);
  const int log2 = common_log2(yes, no);
  const bool is_any = yes.is_any && no.is_any;
  const double predicted = std::max(predicted_of(yes), predicted_of(no));
  yes = s.at(yes, log2), no = s.at(no, log2);
  Scaled y = s.made(emit(s, call, {call[Select::condition].data, yes.data, no.data}), log2,
                    is_any ? 0 : predicted);
  y.is_any = is_any;
  return {y};
}

// x^2 of a normal x has the RMS sqrt(3) sigma^2.
Scales square(Scaler& s, const ScaleCall& call) {
  const Scaled x = s.without_factor(call[0]);
  return {s.made(emit(s, call, {x.data}), 2 * x.log2, 2 * x.predicted + half_log2(3))};
}

Scales root(Scaler& s, const ScaleCall& call) {
  const Scaled x = even(s, call[0]);
  return {s.made(emit(s, call, {x.data}), x.log2 / 2, x.predicted / 2)};
}

Scales inverse_root(Scaler& s, const ScaleCall& call) {
  const Scaled x = even(s, call[0]);
  return {s.made(emit(s, call, {x.data}), -x.log2 / 2, -x.predicted / 2)};
}

// A number is a mantissa in [1, 2) and a power of two.
Scales fill(Scaler& s, const ScaleCall& call) {
  FillAttrs attrs = std::get<FillAttrs>(call.node.attrs);
  const bool is_any = attrs.value == 0 || !std::isfinite(attrs.value);
  const double predicted = is_any ? 0 : std::log2(std::fabs(attrs.value));
  const int log2 = call.wants_plain ? 0 : s.choose(std::floor(predicted));
  if (!is_any) attrs.value = std::ldexp(attrs.value, -log2);
  Scaled y = s.made(s.b.emit1(OpCode::fill, attrs, {}), is_any ? 0 : log2, predicted);
  y.is_any = is_any;
  return {y};
}

// What is padded with must mean the same at x's scale.
Scales pad(Scaler& s, const ScaleCall& call) {
  PadAttrs attrs = std::get<PadAttrs>(call.node.attrs);
  const Scaled x = attrs.value == 0 ? call[0] : s.without_factor(call[0]);
  attrs.value = std::ldexp(attrs.value, -x.log2);
  return {s.made(s.b.emit1(OpCode::pad, attrs, {x.data}), x.log2, x.predicted, x.factor)};
}

// Independent addends; they take the result's scale first.
Scales reduce_sum(Scaler& s, const ScaleCall& call) {
  const Shape& shape = call.shape(0);
  double n = 1;
  for (const int64_t axis : std::get<AxesAttrs>(call.node.attrs).axes)
    n *= static_cast<double>(shape[ops::at(axis)]);
  const double predicted = call[0].predicted + (n > 0 ? half_log2(n) : 0);
  const Scaled x = s.at(call[0], call.wants_plain ? 0 : s.choose(predicted));
  return {s.made(emit(s, call, {x.data}), x.log2, predicted, x.factor)};
}

Scales dot(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DotAttrs>(call.node.attrs);
  double k = 1;
  for (const int64_t axis : attrs.contract_a) k *= static_cast<double>(call.shape(0)[at(axis)]);
  const Scaled a = call[0], b = s.without_factor(call[1]);
  const double predicted = a.predicted + b.predicted + (k > 0 ? half_log2(k) : 0);
  const Scaled y = s.made(emit(s, call, {a.data, b.data}), a.log2 + b.log2, predicted, a.factor);
  return {s.at(y, call.wants_plain ? 0 : s.choose(predicted))};
}

// Rows fall evenly: each gets tokens / rows addends, at least one.
Scales scatter_add(Scaler& s, const ScaleCall& call) {
  const Scaled x = call[0];
  const auto rows = static_cast<double>(std::get<ScatterAddAttrs>(call.node.attrs).rows);
  const auto tokens = static_cast<double>(n_elems(call.shape(1)));
  const double predicted = x.predicted + half_log2(std::max(1.0, tokens / std::max(1.0, rows)));
  return {s.made(emit(s, call, {x.data, call[1].data}), x.log2, predicted, x.factor)};
}

Scales set_scale(Scaler& s, const ScaleCall& call) {
  const auto log2 = static_cast<int>(std::get<ScaleAttrs>(call.node.attrs).log2);
  return {s.at(s.without_factor(call[0]), log2)};
}

Scales rebalance(Scaler& s, const ScaleCall& call) {
  const auto log2 = static_cast<int>(std::get<ScaleAttrs>(call.node.attrs).log2);
  return {s.at(call[0], call[0].log2 + log2)};
}

Scaled rescaled_by_norm(Scaler& s, const Scaled& x, RescaleNorm norm) {
  return times_factor(s.b, x, norm_power(s.b, x.data, norm));
}

Scales dynamic_rescale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DynamicRescaleAttrs>(call.node.attrs);
  if (attrs.direction == Direction::backward || call[0].is_any) return {call[0]};
  return {rescaled_by_norm(s, call[0], attrs.norm)};
}

// By the factor of the step before; a state that is 0 has none yet. One step moves it by 2^4 at the
// most.
Scales delayed_rescale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DynamicRescaleAttrs>(call.node.attrs);
  const ValueId kept = call[DelayedRescale::factor].data;
  if (attrs.direction == Direction::backward || call[0].is_any)
    return {call[0], s.made(kept, 0, 0)};
  Builder& b = s.b;
  const ValueId one = b.fill({}, 1);
  const ValueId is_set = b.emit1(OpCode::less, NoAttrs{}, {b.fill({}, 0), kept});
  const Scaled y = times_factor(b, call[0], b.select(is_set, kept, one));
  const ValueId drift = norm_power(b, y.data, attrs.norm);
  const ValueId least = b.emit1(OpCode::maximum, NoAttrs{}, {drift, b.fill({}, 1.0 / 16)});
  const ValueId change = b.emit1(OpCode::minimum, NoAttrs{}, {least, b.fill({}, 16)});
  return {y, s.made(b.mul(b.select(is_set, kept, one), change), 0, 0)};
}

Scales custom_scale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<CustomScaleAttrs>(call.node.attrs);
  if (attrs.direction == Direction::backward) return {call[0]};
  int64_t log2 = attrs.log2;
  for (size_t i = 0; i < attrs.powers.size(); ++i) log2 += attrs.powers[i] * call[i + 1].log2;
  return {s.at(s.without_factor(call[0]), s.carries() ? static_cast<int>(log2) : 0)};
}

Scales data_scale(Scaler& s, const ScaleCall& call) {
  const Scaled& x = call[0];
  const ValueId scale = s.multiplier(x.log2, x.factor);
  return {s.made(x.data, 0, x.predicted - x.log2),
          s.made(scale == kNoValue ? s.constant(0) : scale, 0, 0)};
}

}  // namespace octet::ops::scale
