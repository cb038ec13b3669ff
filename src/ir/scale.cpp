#include "ir/scale.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/ops/axis_scales.h"

namespace octet {
namespace {

// The nearest integer, a tie down.
int nearest(double x) {
  return static_cast<int>(std::ceil(x - 0.5));
}

// Of two factors; one of a tensor repeats where the other is of rows or columns.
ValueId combined(Builder& b, OpCode op, ValueId x, ValueId y) {
  const Shape of_x = b.shape(x), of_y = b.shape(y);
  if (of_x.empty() && !of_y.empty()) x = b.broadcast(x, of_y, {});
  if (!of_x.empty() && of_y.empty()) y = b.broadcast(y, of_x, {});
  return b.binary(op, x, y);
}

// Factors of rows and of columns.
bool are_of_other_axes(const Builder& b, ValueId x, ValueId y) {
  if (x == kNoValue || y == kNoValue || b.shape(x).empty() || b.shape(y).empty()) return false;
  return b.shape(x) != b.shape(y);
}

}  // namespace

int Scaler::choose(double predicted) const {
  constexpr double kMost = 126;  // beyond, f32 has no such power of two, or not its inverse
  if (!carries_ || !(std::fabs(predicted) <= kMost)) return 0;
  if (rounding_ == ScaleRounding::paper) return static_cast<int>(std::floor(predicted));
  if (rounding_ == ScaleRounding::up) return static_cast<int>(std::ceil(predicted));
  return nearest(predicted);
}

ValueId Scaler::constant(int log2) {
  const auto [it, added] = constants_.try_emplace(log2, kNoValue);
  if (added) it->second = b.fill({}, std::ldexp(1.0, log2));
  return it->second;
}

ValueId Scaler::multiplier(int log2, ValueId factor, ValueId other) {
  ValueId result = log2 == 0 ? kNoValue : constant(log2);
  for (const ValueId f : {factor, other}) {
    if (f != kNoValue) result = result == kNoValue ? f : combined(b, OpCode::mul, result, f);
  }
  return result;
}

ValueId Scaler::quotient(ValueId factor, ValueId divisor) {
  if (factor == divisor) return kNoValue;
  if (divisor == kNoValue) return factor;
  return combined(b, OpCode::div, factor == kNoValue ? constant(0) : factor, divisor);
}

Scaled Scaler::to(const Scaled& x, const Scale& scale) {
  if (x.data == kNoValue || (x.log2 == scale.log2 && x.factor == scale.factor)) return x;
  if (are_of_other_axes(b, x.factor, scale.factor))
    return to(ops::scale::at_one_scale(*this, x), scale);
  Scaled result = x;
  result.log2 = scale.log2;
  result.factor = scale.factor;
  if (x.is_any) return result;
  const ValueId factor = multiplier(x.log2 - scale.log2, quotient(x.factor, scale.factor));
  result.data = b.rescale(x.data, factor);
  return result;
}

Scale Scaler::largest(const std::vector<Scale>& scales) {
  if (scales.empty()) return {};
  Scale result = scales[0];
  bool differ = false;
  for (const Scale& scale : scales) {
    result.log2 = std::max(result.log2, scale.log2);
    differ = differ || scale.factor != result.factor;
  }
  if (!differ) return result;
  result.factor = kNoValue;
  for (const Scale& scale : scales) {
    ValueId size = multiplier(scale.log2 - result.log2, scale.factor);
    if (size == kNoValue) size = constant(0);
    result.factor =
        result.factor == kNoValue ? size : combined(b, OpCode::maximum, result.factor, size);
  }
  return result;
}

Scaled Scaler::made(ValueId data, int log2, double predicted, ValueId factor) const {
  const bool keeps = rounding_ == ScaleRounding::predicted;
  return {.data = data,
          .log2 = log2,
          .factor = factor,
          .predicted = keeps ? predicted : static_cast<double>(log2)};
}

ValueIds ScaleCall::data() const {
  ValueIds data;
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
