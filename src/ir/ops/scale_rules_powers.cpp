// Powers and roots, whose scales are powers and roots.
#include <cmath>
#include <cstdlib>

#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {
namespace {

// A square root's operand, of a scale that is 4^log2 times factor^2.
struct Halved {
  ValueId data = kNoValue, factor = kNoValue;
  int log2 = 0;
};

// Halves the scale's exponent, made even first: a factor's at run time, since its root, rounded to
// a power of two, is the root of a factor at most twice or half as large.
Halved halved(Scaler& s, const Scaled& x) {
  const int log2 = x.log2 - (x.log2 % 2 == 0 ? 0 : 1);
  if (x.factor == kNoValue) return {.data = s.at(x, log2).data, .log2 = log2 / 2};
  const ValueId root = s.b.unary(OpCode::power_of_two, s.b.unary(OpCode::sqrt, x.factor));
  return {.data = s.to(x, {log2, s.b.unary(OpCode::square, root)}).data,
          .factor = root,
          .log2 = log2 / 2};
}

// x^n, n operands multiplied or one to that power, by an op that is emitted on x's data. Where the
// scale to that power might leave f32's range, x itself is taken to the power.
Scales to_power(Scaler& s, const ScaleCall& call, int64_t n, double predicted) {
  constexpr double kMaxLog2 = 60;
  constexpr int64_t kMaxFactors = 8;  // a factor of the scale may be large, too
  Scaled x = call[0];
  if (std::abs(n) > kMaxFactors) x = s.without_factor(x);
  if (std::fabs(static_cast<double>(n) * x.log2) > kMaxLog2) x = s.unscaled(x);
  const ValueId factor = x.factor == kNoValue || n == 0
                             ? kNoValue
                             : s.b.emit1(OpCode::integer_pow, PowerAttrs{.n = n}, {x.factor});
  return {s.made(emit(s, call, {x.data}), static_cast<int>(n * x.log2), predicted, factor)};
}

}  // namespace

// x^2 of a normal x has the RMS sqrt(3) sigma^2.
Scales square(Scaler& s, const ScaleCall& call) {
  const Scaled x = std::abs(2 * call[0].log2) <= 126 ? call[0] : s.at(call[0], 0);
  return {s.made(emit(s, call, {x.data}), 2 * x.log2, 2 * x.predicted + half_log2(3),
                 s.multiplier(0, x.factor, x.factor))};
}

// x^2n of a normal x has the mean 1 * 3 * ... * (2n - 1) sigma^2n; a power below 0 has none.
Scales integer_pow(Scaler& s, const ScaleCall& call) {
  const int64_t n = std::get<PowerAttrs>(call.node.attrs).n;
  double log2 = 0;
  for (int64_t i = 1; i <= n; ++i) log2 += half_log2(static_cast<double>(2 * i - 1));
  return to_power(s, call, n, static_cast<double>(n) * call[0].predicted + log2);
}

Scales reduce_prod(Scaler& s, const ScaleCall& call) {
  const Shape& axes = std::get<AxesAttrs>(call.node.attrs).axes;
  const int64_t n = n_elems(at_axes(call.shape(0), axes));
  return to_power(s, call, n, static_cast<double>(n) * call[0].predicted);
}

Scales root(Scaler& s, const ScaleCall& call) {
  const Halved x = halved(s, call[0]);
  return {s.made(emit(s, call, {x.data}), x.log2, call[0].predicted / 2, x.factor)};
}

Scales inverse_root(Scaler& s, const ScaleCall& call) {
  const Halved x = halved(s, call[0]);
  return {s.made(emit(s, call, {x.data}), -x.log2, -call[0].predicted / 2,
                 s.quotient(kNoValue, x.factor))};
}

}  // namespace octet::ops::scale
