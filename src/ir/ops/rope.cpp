#include "ir/ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet {

namespace {

// How much of f is stretched: [low, high] in indices, from none to all.
struct YarnRamp {
  double low, high;

  explicit YarnRamp(const RopeAttrs& a) {
    const auto dim = static_cast<double>(a.head_dim);
    const auto index = [&](double turns) {
      const double length = static_cast<double>(a.original_max_position);
      return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(a.theta));
    };
    low = index(a.beta_fast), high = index(a.beta_slow);
    if (a.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, dim - 1);
    if (low == high) high += 0.001;  // as transformers has it
  }
  double share(double i) const { return std::clamp((i - low) / (high - low), 0.0, 1.0); }
};

// Base of the angles before they are scaled one by one.
double base_of(const RopeAttrs& a) {
  if (a.scaling != RopeScaling::dynamic) return a.theta;
  const auto original = static_cast<double>(a.original_max_position);
  const auto dim = static_cast<double>(a.head_dim);
  const double seq = std::max(static_cast<double>(a.seq), original);
  return a.theta * std::pow(a.factor * seq / original - (a.factor - 1), dim / (dim - 2));
}

double llama3_frequency(const RopeAttrs& a, double f) {
  const double turns = static_cast<double>(a.original_max_position) * f / (2 * std::numbers::pi);
  if (turns < a.low_freq_factor) return f / a.factor;
  if (turns > a.high_freq_factor) return f;
  const double s = (turns - a.low_freq_factor) / (a.high_freq_factor - a.low_freq_factor);
  return (1 - s) * f / a.factor + s * f;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeAttrs& attrs) {
  std::vector<double> frequencies;
  const double base = base_of(attrs);
  const YarnRamp ramp(attrs);
  for (int64_t i = 0; i < attrs.head_dim / 2; ++i) {
    const auto index = static_cast<double>(i);
    double f = std::pow(base, -2.0 * index / static_cast<double>(attrs.head_dim));
    if (attrs.scaling == RopeScaling::linear) f /= attrs.factor;
    if (attrs.scaling == RopeScaling::llama3) f = llama3_frequency(attrs, f);
    if (attrs.scaling == RopeScaling::yarn) {
      const double share = ramp.share(index);
      f = (1 - share) * f + share * f / attrs.factor;
    }
    if (attrs.scaling == RopeScaling::longrope) f /= attrs.divisors[static_cast<size_t>(i)];
    frequencies.push_back(f);
  }
  return frequencies;
}

namespace ops {
namespace {

void check_scaling(const RopeAttrs& a) {
  if (a.heads < 1 || a.head_dim < 2 || a.head_dim % 2 != 0) {
    fail("rope", "expected heads >= 1 and an even head_dim >= 2, got {} and {}", a.heads,
         a.head_dim);
  }
  if (!(a.theta > 0)) fail("rope", "theta must be positive, got {}", a.theta);
  const bool is_longrope = a.scaling == RopeScaling::longrope;
  if (std::ssize(a.divisors) != (is_longrope ? a.head_dim / 2 : 0) ||
      std::ranges::any_of(a.divisors, [](double one) { return !(one > 0); })) {
    fail("rope", "expected a positive divisor for each pair of longrope, got {}",
         a.divisors.size());
  }
  if (a.scaling == RopeScaling::none) return;
  if (a.scaling == RopeScaling::dynamic && a.head_dim < 4) {
    fail("rope", "dynamic scaling expects a head_dim >= 4, got {}", a.head_dim);
  }
  if (a.original_max_position < 1 || !(a.beta_fast > 0) || !(a.beta_slow > 0)) {
    fail("rope", "expected original_max_position >= 1 and betas > 0, got {}, {} and {}",
         a.original_max_position, a.beta_fast, a.beta_slow);
  }
  if (!(a.factor > 0)) fail("rope", "factor must be positive, got {}", a.factor);
  if (a.scaling == RopeScaling::llama3 && !(a.high_freq_factor > a.low_freq_factor)) {
    fail("rope", "high_freq_factor must be above low_freq_factor, got {} and {}",
         a.high_freq_factor, a.low_freq_factor);
  }
}

Results infer_rope(const Attrs& attrs, Types in) {
  const auto& a = std::get<RopeAttrs>(attrs);
  check_scaling(a);
  need_matrix("rope", "x", in[0]);
  need_dims("rope", "heads x head_dim", {a.heads, a.head_dim});
  need_shape("rope", "x", in[0], {in[0].shape[0], a.heads * a.head_dim});
  need_int("rope", "positions", in[1], {in[0].shape[0]});
  return with_amax_results(OpCode::rope, attrs, {real(in[0].shape)});
}

Values vjp_rope(Builder& b, const VjpCall& call) {
  RopeAttrs attrs = std::get<RopeAttrs>(call.node.attrs);
  attrs.inverse = !attrs.inverse;
  attrs.amax = false;
  return {b.emit1(OpCode::rope, attrs, {call.dresults[0], call.node.operands[1]}), kNoValue};
}

// The frequencies as a value: constants side by side.
ValueId frequency_vector(Builder& b, const RopeAttrs& attrs) {
  Values parts;
  for (const double f : rope_frequencies(attrs)) parts.push_back(b.fill({1}, f));
  return b.concatenate(parts, 0);
}

Values decompose_rope(Builder& b, const Node& node, Said said) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node, said);
  const auto& a = std::get<RopeAttrs>(node.attrs);
  const int64_t rows = b.shape(node.operands[0])[0];
  const int64_t half = a.head_dim / 2;
  const Shape shape{rows, a.heads, half};
  const ValueId positions = b.unary(OpCode::cast, node.operands[1]);
  const ValueId angle = b.mul(b.broadcast(positions, {rows, half}, {0}),
                              b.broadcast(frequency_vector(b, a), {rows, half}, {1}));
  const ValueId cosine = b.broadcast(b.unary(OpCode::cos, angle), shape, {0, 2});
  ValueId sine = b.broadcast(b.unary(OpCode::sin, angle), shape, {0, 2});
  if (a.inverse) sine = b.neg(sine);
  const ValueId x = b.reshape(node.operands[0], {rows, a.heads, a.head_dim});
  const ValueId low = b.slice(x, 2, 0, half);
  const ValueId high = b.slice(x, 2, half, half);
  const ValueId y = b.concatenate(
      {b.sub(b.mul(low, cosine), b.mul(high, sine)), b.add(b.mul(high, cosine), b.mul(low, sine))},
      2);
  return {b.reshape(y, {rows, a.heads * a.head_dim})};
}

}  // namespace

constinit const OpDef defs::rope = define(OpCode::rope, {.infer = infer_rope,
                                                         .vjp = vjp_rope,
                                                         .decompose = decompose_rope,
                                                         .scale = scale::same,
                                                         .cost = cost_per_result<3>,
                                                         .inplace = kInplaceFirst});

}  // namespace ops
}  // namespace octet
