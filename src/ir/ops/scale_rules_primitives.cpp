#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "ir/ops/axis_scales.h"
#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {
ValueId emit(Scaler& s, const ScaleCall& call, Values data) {
  return s.b.emit1(call.node.op, call.node.attrs, std::move(data));
}

namespace {

// log2 of the RMS up to which FP16 holds the addends of a sum with scale 1.
constexpr double kMaxUnscaled = 10;

// The largest scale of those that have one.
Scale common_scale(Scaler& s, const std::vector<Scaled>& operands) {
  std::vector<Scale> scales;
  for (const Scaled& x : operands)
    if (!x.is_any) scales.push_back({x.log2, x.factor});
  return s.largest(scales);
}

double predicted_of(const Scaled& x) {
  return x.is_any ? -std::numeric_limits<double>::infinity() : x.predicted;
}

// Times a run-time factor, whose power goes into the scale.
Scaled times_factor(Scaler& s, const Scaled& x, ValueId factor) {
  const ValueId inverse = s.b.div(s.b.fill({}, 1), factor);
  return {.data = s.b.rescale(x.data, inverse),
          .log2 = x.log2,
          .factor = s.multiplier(0, x.factor, factor),
          .predicted = static_cast<double>(x.log2),  // near 1 now, whatever was predicted
          .is_any = x.is_any};
}

}  // namespace

ValueId norm_power(Builder& b, ValueId x, RescaleNorm norm) {
  const Shape shape = b.shape(x), axes = iota_axes(shape.size());
  const double mean = 1 / static_cast<double>(std::max<int64_t>(1, n_elems(shape)));
  ValueId size = kNoValue;
  if (norm == RescaleNorm::max) {
    size = b.reduce_max(b.unary(OpCode::abs, x), axes);
  } else if (norm == RescaleNorm::l1) {
    size = b.scaled(b.reduce_sum(b.unary(OpCode::abs, x), axes), mean);
  } else {
    const ValueId root_mean = b.scaled(x, std::sqrt(mean));
    size = b.unary(OpCode::sqrt, b.reduce_sum(b.unary(OpCode::square, root_mean), axes));
  }
  return b.unary(OpCode::power_of_two, size);
}

Scales same(Scaler& s, const ScaleCall& call) {
  Scaled y = call[0];
  y.data = emit(s, call, call.data());
  y.factor = moved_factor(s, call, y.factor);
  return {y};
}

Scales of_values(Scaler& s, const ScaleCall& call) {
  return {s.made(emit(s, call, call.data()), 0, 0)};
}

// The value is another, at the same scale.
Scales rescale(Scaler& s, const ScaleCall& call) {
  Scaled y = same(s, call)[0];
  if (s.rounding() == ScaleRounding::predicted) y.predicted += call[Rescale::factor].predicted;
  return {y};
}

// A value rounded to a narrower dtype means another number at another scale, an infinity too.
Scales cast_in(Scaler& s, const ScaleCall& call) {
  Scaled y = same(s, call)[0];
  y.is_any = false;
  return {y};
}

namespace {

// Addends whose scales are known at run time meet at the larger of those that each would be given
// alone.
Scaled sum_at_run_time(Scaler& s, const ScaleCall& call) {
  const Scaled &a = call[0], &b = call[1];
  const Scale scale =
      s.largest({{s.choose(a.predicted), a.factor}, {s.choose(b.predicted), b.factor}});
  return s.made(emit(s, call, {s.to(a, scale).data, s.to(b, scale).data}), scale.log2,
                root_sum(a.predicted, b.predicted), scale.factor);
}

// Operands of a result at the scale 2^log2; where f32 has no such power of two, values themselves.
std::pair<Scaled, Scaled> held(Scaler& s, const Scaled& a, const Scaled& b, int log2) {
  if (std::abs(log2) <= 126) return {a, b};
  return {s.at(a, 0), s.at(b, 0)};
}

}  // namespace

// Independent addends.
Scales add(Scaler& s, const ScaleCall& call) {
  Scaled a = call[0], b = call[1];
  if (a.factor != b.factor && !a.is_any && !b.is_any) return {sum_at_run_time(s, call)};
  const double predicted = root_sum(predicted_of(a), predicted_of(b));
  const bool all_any = a.is_any && b.is_any;
  // The larger addend keeps its scale, if the sum is within [1/2, 2] there.
  const Scaled& larger = predicted_of(a) >= predicted_of(b) ? a : b;
  const bool keeps = s.rounding() == ScaleRounding::predicted && s.carries() &&
                     std::fabs(predicted - larger.log2) <= 1;
  const int chosen = keeps ? larger.log2 : s.choose(predicted);
  // A difference of large values may be small: they meet at a scale that holds them both.
  const bool fits_unscaled = predicted_of(larger) < kMaxUnscaled;
  const int log2 = (call.wants_unscaled && fits_unscaled) || all_any ? 0 : chosen;
  const ValueId factor = a.is_any ? b.factor : a.factor;
  a = s.at(a, log2), b = s.at(b, log2);
  Scaled y = s.made(emit(s, call, {a.data, b.data}), log2, predicted, factor);
  y.is_any = all_any;
  return {y};
}

Scales mul(Scaler& s, const ScaleCall& call) {
  const auto [a, b] = held(s, call[0], call[1], call[0].log2 + call[1].log2);
  Scaled y = s.made(emit(s, call, {a.data, b.data}), a.log2 + b.log2, a.predicted + b.predicted,
                    s.multiplier(0, a.factor, b.factor));
  y.is_any = a.is_any || b.is_any;
  return {y};
}

Scales div(Scaler& s, const ScaleCall& call) {
  const auto [a, b] = held(s, call[0], call[1], call[0].log2 - call[1].log2);
  Scaled y = s.made(emit(s, call, {a.data, b.data}), a.log2 - b.log2, a.predicted - b.predicted,
                    s.quotient(a.factor, b.factor));
  y.is_any = a.is_any;
  return {y};
}

// The larger scale holds both operands.
Scales compare(Scaler& s, const ScaleCall& call) {
  const Scale scale = common_scale(s, call.in);
  Values data;
  for (const Scaled& x : call.in) data.push_back(s.to(x, scale).data);
  return {s.made(emit(s, call, std::move(data)), 0, 0)};
}

Scales largest(Scaler& s, const ScaleCall& call) {
  const Scale scale = common_scale(s, call.in);
  double predicted = -std::numeric_limits<double>::infinity();
  bool is_any = true;
  Values data;
  for (const Scaled& x : call.in) {
    predicted = std::max(predicted, predicted_of(x));
    is_any = is_any && x.is_any;
    data.push_back(s.to(x, scale).data);
  }
  Scaled y =
      s.made(emit(s, call, std::move(data)), scale.log2, is_any ? 0 : predicted, scale.factor);
  y.is_any = is_any;
  return {y};
}

Scales select(Scaler& s, const ScaleCall& call) {
  const Scaled &yes = call[Select::yes], &no = call[Select::no];
  const Scale scale = common_scale(s, {yes, no});
  const bool is_any = yes.is_any && no.is_any;
  const double predicted = std::max(predicted_of(yes), predicted_of(no));
  Scaled y = s.made(
      emit(s, call, {call[Select::condition].data, s.to(yes, scale).data, s.to(no, scale).data}),
      scale.log2, is_any ? 0 : predicted, scale.factor);
  y.is_any = is_any;
  return {y};
}

// A number is a mantissa in [1, 2) and a power of two.
Scales fill(Scaler& s, const ScaleCall& call) {
  FillAttrs attrs = std::get<FillAttrs>(call.node.attrs);
  const bool is_any = attrs.value == 0 || !std::isfinite(attrs.value);
  const double predicted = is_any ? 0 : std::log2(std::fabs(attrs.value));
  const int log2 = call.wants_unscaled ? 0 : s.choose(std::floor(predicted));
  if (!is_any) attrs.value = std::ldexp(attrs.value, -log2);
  Scaled y = s.made(s.b.emit1(OpCode::fill, attrs, {}), is_any ? 0 : log2, predicted);
  y.is_any = is_any;
  return {y};
}

namespace {

// No attribute takes a factor: the value that is padded with is selected.
Scales pad_at_run_time(Scaler& s, const ScaleCall& call, PadAttrs attrs) {
  const double value = attrs.value;
  const Shape& shape = call.shape(0);
  Builder& b = s.b;
  attrs.value = 1;
  const ValueId outside = b.emit1(OpCode::pad, attrs, {b.fill(shape, 0)});
  const ValueId is_outside = b.less(b.fill_like(outside, 0), outside);
  const int log2 = s.choose(std::floor(std::log2(std::fabs(value))));
  const Scaled beyond =
      s.made(b.fill_like(outside, std::ldexp(value, -log2)), log2, std::log2(std::fabs(value)));
  const Scale scale = common_scale(s, {call[0], beyond});
  attrs.value = 0;
  const ValueId inside = b.emit1(OpCode::pad, attrs, {s.to(call[0], scale).data});
  return {s.made(b.select(is_outside, s.to(beyond, scale).data, inside), scale.log2,
                 call[0].predicted, scale.factor)};
}

}  // namespace

// Padding must mean the same at x's scale.
Scales pad(Scaler& s, const ScaleCall& call) {
  PadAttrs attrs = std::get<PadAttrs>(call.node.attrs);
  const Scaled& x = call[0];
  const bool is_any = attrs.value == 0 || !std::isfinite(attrs.value);
  if (!is_any && x.factor != kNoValue) return pad_at_run_time(s, call, attrs);
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
  const Scaled x = s.at(call[0], call.wants_unscaled ? 0 : s.choose(predicted));
  return {s.made(emit(s, call, {x.data}), x.log2, predicted, x.factor)};
}

// Sums as those of reduce_sum, of a window; maxima and minima are at x's scale.
Scales reduce_window(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<WindowAttrs>(call.node.attrs);
  if (attrs.reduction != WindowReduction::sum) return same(s, call);
  const double predicted =
      call[0].predicted + half_log2(static_cast<double>(n_elems(attrs.window)));
  const Scaled x = s.at(call[0], call.wants_unscaled ? 0 : s.choose(predicted));
  return {s.made(emit(s, call, {x.data}), x.log2, predicted, x.factor)};
}

namespace {

// How many windows hold a pixel, on average.
double n_holders(const UnfoldAttrs& a) {
  double n = 1;
  for (const size_t axis : {0, 1}) {
    const auto places = static_cast<double>(a.n_windows(axis) * a.window[axis]);
    n *= std::max(1.0, places / static_cast<double>(a.picture[axis]));
  }
  return n;
}

double predicted_product(const ScaleCall& call, double n) {
  return call[0].predicted + call[1].predicted + (n > 0 ? half_log2(n) : 0);
}

// Of two factors, with sums of n addends.
Scales product(Scaler& s, const ScaleCall& call, double n) {
  const auto [a, b] = held(s, call[0], call[1], call[0].log2 + call[1].log2);
  const double predicted = predicted_product(call, n);
  const Scaled y = s.made(emit(s, call, {a.data, b.data}), a.log2 + b.log2, predicted,
                          s.multiplier(0, a.factor, b.factor));
  const int log2 = call.wants_unscaled ? 0 : s.choose(predicted);
  return {s.made(s.at(y, log2).data, log2, predicted, y.factor)};
}

// The same where so many addends may overflow before a scale divides them: the factors share it.
Scales scaled_first(Scaler& s, const ScaleCall& call, double n) {
  const Scaled &a = call[0], &b = call[1];
  const double predicted = predicted_product(call, n);
  const int log2 = call.wants_unscaled ? 0 : s.choose(predicted);
  const int more = log2 - a.log2 - b.log2, half = more / 2;
  const Scaled x = s.at(a, a.log2 + half), y = s.at(b, b.log2 + more - half);
  return {s.made(emit(s, call, {x.data, y.data}), log2, predicted,
                 s.multiplier(0, a.factor, b.factor))};
}

}  // namespace

Scales fold(Scaler& s, const ScaleCall& call) {
  const double n = n_holders(std::get<UnfoldAttrs>(call.node.attrs));
  const double predicted = call[0].predicted + half_log2(n);
  const Scaled x = s.at(call[0], call.wants_unscaled ? 0 : s.choose(predicted));
  return {s.made(emit(s, call, {x.data}), x.log2, predicted, x.factor)};
}

Scales dot(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DotAttrs>(call.node.attrs);
  double k = 1;
  for (const int64_t axis : attrs.contract_a) k *= static_cast<double>(call.shape(0)[at(axis)]);
  return product(s, call, k);
}

// Sums over a window, over those that hold a pixel on average, or over all pixels of the result.
Scales depthwise(Scaler& s, const ScaleCall& call) {
  const auto& [windows, role] = std::get<ConvolutionAttrs>(call.node.attrs);
  if (role == GemmRole::wgrad) return scaled_first(s, call, static_cast<double>(call.shape(0)[0]));
  const auto n = static_cast<double>(windows.window[0] * windows.window[1]);
  return product(s, call, role == GemmRole::forward ? n : n_holders(windows));
}

// Rows fall evenly: each gets tokens / rows addends, at least one.
Scales scatter_add(Scaler& s, const ScaleCall& call) {
  const Scaled x = call[0];
  const auto rows = static_cast<double>(std::get<ScatterAddAttrs>(call.node.attrs).rows);
  const auto tokens = static_cast<double>(n_elems(call.shape(1)));
  const double predicted = x.predicted + half_log2(std::max(1.0, tokens / std::max(1.0, rows)));
  return {s.made(emit(s, call, {x.data, call[1].data}), x.log2, predicted, x.factor)};
}

namespace {

// At a scale that is said outright: the data are meant to be near 1 there. Where no scales are
// carried, what is left of it is the prediction.
Scaled stated(Scaler& s, const Scaled& x, const Scale& scale) {
  Scaled y = s.carries() ? s.to(x, scale) : x;
  y.predicted = scale.log2;
  return y;
}

}  // namespace

// A scale that is given at run time is rounded to a power of two, whatever the rounding of others.
Scales set_scale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<ScaleAttrs>(call.node.attrs);
  const bool is_given = call.in.size() > SetScale::scale;
  if (attrs.direction == Direction::backward || (is_given && !s.carries())) return {call[0]};
  Scale scale = {static_cast<int>(attrs.log2)};
  if (is_given && !call[0].is_any)
    scale.factor = s.b.unary(OpCode::power_of_two, call[SetScale::scale].data);
  return {stated(s, call[0], scale)};
}

Scales stop_scaling(Scaler&, const ScaleCall& call) {
  return {call[0]};  // the value itself, as the op needs it
}

Scales rebalance(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<ScaleAttrs>(call.node.attrs);
  const auto log2 = static_cast<int>(attrs.log2);
  if (attrs.direction == Direction::backward || !s.carries()) return {call[0]};
  return {stated(s, call[0], {call[0].log2 + log2, call[0].factor})};
}

Scaled rescaled_by_norm(Scaler& s, const Scaled& x, RescaleNorm norm) {
  return times_factor(s, x, norm_power(s.b, x.data, norm));
}

Scales dynamic_rescale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DynamicRescaleAttrs>(call.node.attrs);
  if (attrs.direction == Direction::backward || call[0].is_any || !s.carries()) return {call[0]};
  return {rescaled_by_norm(s, call[0], attrs.norm)};
}

// By the factor of the step before; a state that is 0 has none yet. One step moves it by 2^4 at the
// most.
Scales delayed_rescale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<DynamicRescaleAttrs>(call.node.attrs);
  const ValueId kept = call[DelayedRescale::factor].data;
  if (attrs.direction == Direction::backward || call[0].is_any || !s.carries())
    return {call[0], s.made(kept, 0, 0)};
  Builder& b = s.b;
  const ValueId one = b.fill({}, 1);
  const ValueId is_set = b.less(b.fill({}, 0), kept);
  const Scaled y = times_factor(s, call[0], b.select(is_set, kept, one));
  const ValueId drift = norm_power(b, y.data, attrs.norm);
  const ValueId least = b.maximum(drift, b.fill({}, 1.0 / 16));
  const ValueId change = b.minimum(least, b.fill({}, 16));
  return {y, s.made(b.mul(b.select(is_set, kept, one), change), 0, 0)};
}

Scales custom_scale(Scaler& s, const ScaleCall& call) {
  const auto& attrs = std::get<CustomScaleAttrs>(call.node.attrs);
  if (attrs.direction == Direction::backward || !s.carries()) return {call[0]};
  Scale scale = {.log2 = static_cast<int>(attrs.log2)};
  for (size_t i = 0; i < attrs.powers.size(); ++i) {
    const Scaled& like = call[i + 1];
    scale.log2 += static_cast<int>(attrs.powers[i]) * like.log2;
    if (like.factor == kNoValue) continue;
    for (int64_t k = 0; k < attrs.powers[i]; ++k)
      scale.factor = s.multiplier(0, scale.factor, like.factor);
    for (int64_t k = 0; k > attrs.powers[i]; --k)
      scale.factor = s.quotient(scale.factor, like.factor);
  }
  const bool is_same = scale.log2 == call[0].log2 && scale.factor == call[0].factor;
  return {is_same ? call[0] : stated(s, call[0], scale)};
}

Scales data_scale(Scaler& s, const ScaleCall& call) {
  const Scaled& x = call[0];
  const ValueId scale = s.multiplier(x.log2, x.factor);
  return {s.made(x.data, 0, x.predicted - x.log2),
          s.made(scale == kNoValue ? s.constant(0) : scale, 0, x.log2)};
}

}  // namespace octet::ops::scale
