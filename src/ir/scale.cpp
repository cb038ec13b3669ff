#include "ir/scale.h"

#include <cmath>

#include "base/error.h"

namespace octet {
namespace {

// The nearest integer, a tie down.
int nearest(double x) {
  return static_cast<int>(std::ceil(x - 0.5));
}

}  // namespace

int Scaler::choose(double predicted) const {
  if (!carries_ || !std::isfinite(predicted)) return 0;
  return rounding_ == ScaleRounding::paper ? static_cast<int>(std::floor(predicted))
                                           : nearest(predicted);
}

ValueId Scaler::constant(int log2) {
  const auto [it, added] = constants_.try_emplace(log2, kNoValue);
  if (added) it->second = b.fill({}, std::ldexp(1.0, log2));
  return it->second;
}

ValueId Scaler::multiplier(int log2, ValueId factor, ValueId other) {
  ValueId result = log2 == 0 ? kNoValue : constant(log2);
  for (const ValueId f : {factor, other}) {
    if (f != kNoValue) result = result == kNoValue ? f : b.mul(result, f);
  }
  return result;
}

Scaled Scaler::at(const Scaled& x, int log2) {
  if (x.log2 == log2 || x.data == kNoValue) return x;
  Scaled result = x;
  result.log2 = log2;
  if (!x.is_any) {
    const ValueId factor = constant(x.log2 - log2);
    result.data = b.emit1(OpCode::rescale, NoAttrs{}, {x.data, factor});
  }
  return result;
}

Scaled Scaler::without_factor(const Scaled& x) {
  if (x.factor == kNoValue || x.data == kNoValue) return x;
  Scaled result = x;
  result.factor = kNoValue;
  if (!x.is_any) result.data = b.emit1(OpCode::rescale, NoAttrs{}, {x.data, x.factor});
  return result;
}

Scaled Scaler::made(ValueId data, int log2, double predicted, ValueId factor) const {
  const bool keeps = rounding_ == ScaleRounding::predicted;
  return {.data = data,
          .log2 = log2,
          .factor = factor,
          .predicted = keeps ? predicted : static_cast<double>(log2)};
}

std::vector<ValueId> ScaleCall::data() const {
  std::vector<ValueId> data;
  for (const Scaled& x : in) data.push_back(x.data);
  return data;
}

double root_sum(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return std::isfinite(low) ? high + 0.5 * std::log2(1 + std::exp2(2 * (low - high))) : high;
}

double half_log2(double n) {
  return 0.5 * std::log2(n);
}

double rms_of(double (*f)(double), double sigma) {
  constexpr int kSteps = 512;
  constexpr double kEnd = 8;
  const double width = std::exp2(sigma);
  double sum = 0, weights = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double z = -kEnd + 2 * kEnd * (i + 0.5) / kSteps;
    const double weight = std::exp(-0.5 * z * z), y = f(width * z);
    sum += weight * y * y;
    weights += weight;
  }
  return 0.5 * std::log2(sum / weights);
}

}  // namespace octet
