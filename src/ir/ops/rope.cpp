#include "ir/ops/rope.h"

#include <cmath>
#include <numbers>

#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet {

std::vector<double> rope_frequencies(const RopeAttrs& attrs) {
  std::vector<double> frequencies;
  const auto original = static_cast<double>(attrs.original_max_position);
  for (int64_t i = 0; i < attrs.head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(attrs.head_dim);
    double f = std::pow(attrs.theta, exponent);
    const double turns = original * f / (2 * std::numbers::pi);  // over the original length
    if (attrs.scaling == RopeScaling::linear) {
      f /= attrs.factor;
    } else if (attrs.scaling == RopeScaling::llama3 && turns < attrs.low_freq_factor) {
      f /= attrs.factor;
    } else if (attrs.scaling == RopeScaling::llama3 && turns <= attrs.high_freq_factor) {
      const double s =
          (turns - attrs.low_freq_factor) / (attrs.high_freq_factor - attrs.low_freq_factor);
      f = (1 - s) * f / attrs.factor + s * f;
    }
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
  if (a.scaling == RopeScaling::none) return;
  if (!(a.factor > 0)) fail("rope", "factor must be positive, got {}", a.factor);
  if (a.scaling == RopeScaling::llama3 && !(a.high_freq_factor > a.low_freq_factor)) {
    fail("rope", "high_freq_factor must be above low_freq_factor, got {} and {}",
         a.high_freq_factor, a.low_freq_factor);
  }
}

Results infer_rope(const Attrs& attrs, Types in) {
  const auto& a = std::get<RopeAttrs>(attrs);
  check_scaling(a);
  need_float("rope", "x", in[0]);
  need_rank("rope", "x", in[0], 2);
  need_dims("rope", "heads x head_dim", {a.heads, a.head_dim});
  need_shape("rope", "x", in[0], {in[0].shape[0], a.heads * a.head_dim});
  need_int("rope", "positions", in[1]);
  need_shape("rope", "positions", in[1], {in[0].shape[0]});
  return with_amax_results(OpCode::rope, attrs, {real(in[0].shape)});
}

Values vjp_rope(Builder& b, const VjpCall& call) {
  if (call.dresults[0] == kNoValue) return {kNoValue, kNoValue};
  RopeAttrs attrs = std::get<RopeAttrs>(call.node.attrs);
  attrs.inverse = !attrs.inverse;
  attrs.amax = false;
  return {b.emit1(OpCode::rope, attrs, {call.dresults[0], call.node.operands[1]}), kNoValue};
}

// The frequencies as a value: constants side by side.
ValueId frequency_vector(Builder& b, const RopeAttrs& attrs) {
  Values parts;
  for (const double f : rope_frequencies(attrs)) parts.push_back(b.fill({1}, f));
  return b.emit1(OpCode::concatenate, AxisAttrs{.axis = 0}, parts);
}

Values decompose_rope(Builder& b, const Node& node) {
  if (emits_amax(node.attrs)) return emit_with_amax(b, node);
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
  const auto part = [&](int64_t start) {
    return b.emit1(
        OpCode::slice,
        SliceAttrs{
            .start = {0, 0, start}, .limit = {rows, a.heads, start + half}, .stride = {1, 1, 1}},
        {x});
  };
  const ValueId low = part(0);
  const ValueId high = part(half);
  const ValueId y = b.emit1(
      OpCode::concatenate, AxisAttrs{.axis = 2},
      {b.sub(b.mul(low, cosine), b.mul(high, sine)), b.add(b.mul(high, cosine), b.mul(low, sine))});
  return {b.reshape(y, {rows, a.heads * a.head_dim})};
}

Cost cost_rope(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, 3);
}

}  // namespace

constinit const OpDef kRope = {.code = OpCode::rope,
                               .name = "rope",
                               .operands = Rope::operands,
                               .results = {Rope::results, 1},
                               .infer = infer_rope,
                               .attrs = default_attrs<RopeAttrs>,
                               .vjp = vjp_rope,
                               .decompose = decompose_rope,
                               .cost = cost_rope,
                               .inplace = kInplaceFirst,
                               .amax_results = 1};

}  // namespace ops
}  // namespace octet
