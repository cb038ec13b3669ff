// Element by element: y[i] = f(a[i], ...). Gradients at kinks: abs and sign take 0 at 0, maximum
// and minimum give a tie's gradient to the first operand.
#include <cmath>
#include <limits>
#include <numbers>

#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

template <OpCode C>
Results infer_binary(const Attrs&, Types in) {
  const auto op = op_def(C).name;
  need_float(op, "a", in[0]);
  need_float(op, "b", in[1], in[0].shape);
  return {real(in[0].shape)};
}

// Two floats of any dtype, or two integers or bools of the same.
void need_comparable(std::string_view op, const TensorType& a, const TensorType& b) {
  const bool floats = is_float(a.dtype) && is_float(b.dtype);
  if (!floats && a.dtype != b.dtype) {
    fail(op, "operands must be floats or of one dtype, got {} and {}", to_string(a), to_string(b));
  }
  need_shape(op, "b", b, a.shape);
}

template <OpCode C>
Results infer_compare(const Attrs&, Types in) {
  need_comparable(op_def(C).name, in[0], in[1]);
  return {{.dtype = Dtype::boolean, .shape = in[0].shape}};
}

Results infer_select(const Attrs&, Types in) {
  need_bool("select", "condition", in[0]);
  need_comparable("select", in[1], in[2]);
  need_shape("select", "condition", in[0], in[1].shape);
  return {moved(in[1], in[1].shape)};
}

// From a float, an integer or a bool to a float.
Results infer_cast(const Attrs&, Types in) {
  return {real(in[0].shape)};
}

Results infer_axpby(const Attrs&, Types in) {
  need_float("axpby", "a", in[Axpby::a]);
  need_float("axpby", "b", in[Axpby::b], in[Axpby::a].shape);
  need_float("axpby", "factor_a", in[Axpby::factor_a], {});
  need_float("axpby", "factor_b", in[Axpby::factor_b], {});
  return {real(in[Axpby::a].shape)};
}
Values decompose_axpby(Builder& b, const Node& node) {
  const auto scaled = [&](SlotId x, SlotId factor) {
    return b.emit_typed(OpCode::rescale, NoAttrs{}, {node.in(x), node.in(factor)}, {Dtype::f32})[0];
  };
  return {b.add(scaled(Axpby::a, Axpby::factor_a), scaled(Axpby::b, Axpby::factor_b))};
}

Results infer_is_finite(const Attrs&, Types in) {
  need_float("is_finite", "x", in[0]);
  return {{.dtype = Dtype::boolean, .shape = in[0].shape}};
}
// A NaN is below nothing.
Values decompose_is_finite(Builder& b, const Node& node) {
  const ValueId size = b.unary(OpCode::abs, node.in(Unary::x));
  return {b.less(size, b.fill_like(size, std::numeric_limits<double>::infinity()))};
}

constexpr int64_t kMaxPower = 1 << 20;

Results infer_integer_pow(const Attrs& attrs, Types in) {
  const int64_t n = std::get<PowerAttrs>(attrs).n;
  if (n < -kMaxPower || n > kMaxPower)
    fail("integer_pow", "n must be from {} to {}, got {}", -kMaxPower, kMaxPower, n);
  return infer_same<OpCode::integer_pow>(attrs, in);
}
// By squares, from the lowest bit of |n|; x^-n is 1 / x^n.
Values decompose_integer_pow(Builder& b, const Node& node) {
  const int64_t n = std::get<PowerAttrs>(node.attrs).n;
  const ValueId x = node.in(Unary::x);
  if (n == 0) return {b.fill_like(x, 1)};
  ValueId square = x, power = kNoValue;
  for (int64_t left = n < 0 ? -n : n; left > 0; left /= 2) {
    if (left % 2 == 1)
      power = power == kNoValue ? square : emit_wide(b, OpCode::mul, power, square);
    if (left > 1) square = emit_wide(b, OpCode::mul, square, square);
  }
  if (n < 0) power = emit_wide(b, OpCode::div, b.fill_like(power, 1), power);
  return {power};
}
Values vjp_integer_pow(Builder& b, const VjpCall& call) {
  const int64_t n = std::get<PowerAttrs>(call.node.attrs).n;
  const ValueId dy = call.dresults[0];
  if (n == 0) return {kNoValue};
  if (n == 1) return {dy};
  const ValueId lower =
      b.emit1(OpCode::integer_pow, PowerAttrs{.n = n - 1}, {call.node.in(Unary::x)});
  return {b.mul(b.scaled(dy, static_cast<double>(n)), lower)};
}

using UnaryGradient = ValueId (*)(Builder& b, ValueId dy, ValueId x, ValueId y);

template <UnaryGradient F>
Values vjp_unary(Builder& b, const VjpCall& call) {
  return {F(b, call.dresults[0], call.node.operands[0], call.node.results[0])};
}

// Each gradient in terms of dy, the operand x and the result y.
ValueId d_neg(Builder& b, ValueId dy, ValueId, ValueId) {
  return b.neg(dy);
}
ValueId d_abs(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.mul(dy, b.unary(OpCode::sign, x));
}
ValueId d_none(Builder&, ValueId, ValueId, ValueId) {
  return kNoValue;
}
ValueId d_exp(Builder& b, ValueId dy, ValueId, ValueId y) {
  return b.mul(dy, y);
}
ValueId d_log(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.div(dy, x);
}
ValueId d_sqrt(Builder& b, ValueId dy, ValueId, ValueId y) {
  return b.div(b.scaled(dy, 0.5), y);
}
ValueId d_rsqrt(Builder& b, ValueId dy, ValueId, ValueId y) {
  const ValueId cube = b.mul(y, b.unary(OpCode::square, y));
  return b.mul(b.scaled(dy, -0.5), cube);
}
ValueId d_square(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.mul(b.scaled(dy, 2), x);
}
ValueId d_tanh(Builder& b, ValueId dy, ValueId, ValueId y) {
  const ValueId square = b.unary(OpCode::square, y);
  return b.mul(dy, b.sub(b.fill_like(y, 1), square));
}
ValueId d_erf(Builder& b, ValueId dy, ValueId x, ValueId) {
  const ValueId bell = b.unary(OpCode::exp, b.neg(b.unary(OpCode::square, x)));
  return b.mul(dy, b.scaled(bell, 2 * std::numbers::inv_sqrtpi));
}
ValueId d_logistic(Builder& b, ValueId dy, ValueId, ValueId y) {
  return b.mul(dy, b.mul(y, b.sub(b.fill_like(y, 1), y)));
}
ValueId d_sin(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.mul(dy, b.unary(OpCode::cos, x));
}
ValueId d_cos(Builder& b, ValueId dy, ValueId x, ValueId) {
  return b.neg(b.mul(dy, b.unary(OpCode::sin, x)));
}

using BinaryGradient = Values (*)(Builder& b, ValueId dy, const Node& node);

template <BinaryGradient F>
Values vjp_binary(Builder& b, const VjpCall& call) {
  return F(b, call.dresults[0], call.node);
}

Values d_add(Builder&, ValueId dy, const Node&) {
  return {dy, dy};
}
Values d_sub(Builder& b, ValueId dy, const Node&) {
  return {dy, b.neg(dy)};
}
Values d_mul(Builder& b, ValueId dy, const Node& n) {
  return {b.mul(dy, n.operands[1]), b.mul(dy, n.operands[0])};
}
Values d_div(Builder& b, ValueId dy, const Node& n) {
  const ValueId da = b.div(dy, n.operands[1]);
  return {da, b.neg(b.mul(da, n.results[0]))};
}
Values split(Builder& b, ValueId dy, ValueId second) {
  const ValueId zero = b.fill_like(dy, 0);
  return {b.select(second, zero, dy), b.select(second, dy, zero)};
}
Values d_maximum(Builder& b, ValueId dy, const Node& n) {
  return split(b, dy, b.less(n.operands[0], n.operands[1]));
}
Values d_minimum(Builder& b, ValueId dy, const Node& n) {
  return split(b, dy, b.less(n.operands[1], n.operands[0]));
}
Values d_select(Builder& b, ValueId dy, const Node& n) {
  const ValueId zero = b.fill_like(dy, 0);
  return {kNoValue, b.select(n.operands[0], dy, zero), b.select(n.operands[0], zero, dy)};
}

// The operand's own dtype, which is not the result's.
Values vjp_cast(Builder& b, const VjpCall& call) {
  const Dtype dtype = b.type(call.node.operands[0]).dtype;
  return {is_float(dtype) ? b.cast(call.dresults[0], dtype) : kNoValue};
}

constexpr InplacePair kInplaceSelect[] = {{.result = 0, .operand = 1}, {.result = 0, .operand = 2}};

template <OpCode C, UnaryGradient F>
constexpr OpDef unary(ScaleFn scale, ErrorFn error) {
  return define(C, {.infer = infer_same<C>,
                    .vjp = vjp_unary<F>,
                    .scale = scale,
                    .cost = cost_per_result<1>,
                    .error = error,
                    .inplace = kInplaceFirst});
}

template <OpCode C, BinaryGradient F>
constexpr OpDef binary(ScaleFn scale, ErrorFn error) {
  return define(C, {.infer = infer_binary<C>,
                    .vjp = vjp_binary<F>,
                    .scale = scale,
                    .cost = cost_per_result<1>,
                    .error = error,
                    .inplace = kInplaceEither});
}

template <OpCode C>
constexpr OpDef compare() {
  return define(C,
                {.infer = infer_compare<C>, .scale = scale::compare, .cost = cost_per_result<1>});
}

}  // namespace

constinit const OpDef defs::neg = unary<OpCode::neg, d_neg>(scale::same, error::moved);
constinit const OpDef defs::abs = unary<OpCode::abs, d_abs>(scale::same, error::moved);
constinit const OpDef defs::sign = unary<OpCode::sign, d_none>(scale::of_values, error::exact);
constinit const OpDef defs::exp = unary<OpCode::exp, d_exp>(scale::of_values, error::exp);
constinit const OpDef defs::log = unary<OpCode::log, d_log>(scale::of_values, error::log);
constinit const OpDef defs::sqrt = unary<OpCode::sqrt, d_sqrt>(scale::root, error::sqrt);
constinit const OpDef defs::rsqrt =
    unary<OpCode::rsqrt, d_rsqrt>(scale::inverse_root, error::rsqrt);
constinit const OpDef defs::square = unary<OpCode::square, d_square>(scale::square, error::square);
constinit const OpDef defs::tanh = unary<OpCode::tanh, d_tanh>(scale::of_values, error::rounded);
constinit const OpDef defs::erf = unary<OpCode::erf, d_erf>(scale::of_values, error::rounded);
constinit const OpDef defs::logistic =
    unary<OpCode::logistic, d_logistic>(scale::of_values, error::rounded);
constinit const OpDef defs::sin = unary<OpCode::sin, d_sin>(scale::of_values, error::rounded);
constinit const OpDef defs::cos = unary<OpCode::cos, d_cos>(scale::of_values, error::rounded);

constinit const OpDef defs::add = binary<OpCode::add, d_add>(scale::add, error::rounded_both);
constinit const OpDef defs::sub = binary<OpCode::sub, d_sub>(scale::add, error::rounded_both);
constinit const OpDef defs::mul = binary<OpCode::mul, d_mul>(scale::mul, error::mul);
constinit const OpDef defs::div = binary<OpCode::div, d_div>(scale::div, error::div);
constinit const OpDef defs::maximum =
    binary<OpCode::maximum, d_maximum>(scale::largest, error::rounded_both);
constinit const OpDef defs::minimum =
    binary<OpCode::minimum, d_minimum>(scale::largest, error::rounded_both);

constinit const OpDef defs::less = compare<OpCode::less>();
constinit const OpDef defs::equal = compare<OpCode::equal>();
constinit const OpDef defs::not_equal = compare<OpCode::not_equal>();
constinit const OpDef defs::less_equal = compare<OpCode::less_equal>();
constinit const OpDef defs::greater = compare<OpCode::greater>();
constinit const OpDef defs::greater_equal = compare<OpCode::greater_equal>();
constinit const OpDef defs::is_finite = define(OpCode::is_finite, {.infer = infer_is_finite,
                                                                   .decompose = decompose_is_finite,
                                                                   .scale = scale::of_values,
                                                                   .cost = cost_per_result<1>});
constinit const OpDef defs::integer_pow =
    define(OpCode::integer_pow, {.infer = infer_integer_pow,
                                 .vjp = vjp_integer_pow,
                                 .decompose = decompose_integer_pow,
                                 .scale = scale::integer_pow,
                                 .cost = cost_per_result<2>});
constinit const OpDef defs::select = define(OpCode::select, {.infer = infer_select,
                                                             .vjp = vjp_binary<d_select>,
                                                             .scale = scale::select,
                                                             .cost = cost_per_result<1>,
                                                             .error = error::select,
                                                             .inplace = kInplaceSelect});
constinit const OpDef defs::cast =
    define(OpCode::cast,
           {.infer = infer_cast, .vjp = vjp_cast, .scale = scale::same, .error = error::rounded});
constinit const OpDef defs::stop_gradient =
    define(OpCode::stop_gradient, {.infer = infer_same<OpCode::stop_gradient>,
                                   .scale = scale::same,
                                   .error = error::moved,
                                   .inplace = kInplaceFirst});
constinit const OpDef defs::axpby = define(OpCode::axpby, {.infer = infer_axpby,
                                                           .decompose = decompose_axpby,
                                                           .cost = cost_per_result<3>,
                                                           .inplace = kInplaceEither});

}  // namespace octet::ops
