#include "ir/custom_scale.h"

#include "base/error.h"

namespace octet {
namespace {

void expect_powers(const ScaleMonomial& rule, size_t n) {
  if (rule.powers.size() == n) return;
  throw Error(ErrorCode::invalid_argument, "[custom_scale] expected {} powers, got {}", n,
              rule.powers.size());
}

}  // namespace

ValueId custom_scale(Builder& builder, const SubGraph& f, const ValueIds& inputs,
                     const CustomScaleRules& rules) {
  expect_powers(rules.result, inputs.size());
  CHECK(rules.gradients.empty() || rules.gradients.size() == inputs.size());
  const auto subgraph = static_cast<int64_t>(builder.graph().nodes.size());
  ValueIds inside = inputs;
  for (size_t i = 0; i < rules.gradients.size(); ++i) {
    const auto& [powers, log2] = rules.gradients[i];
    expect_powers(rules.gradients[i], inputs.size() + 1);
    const CustomScaleAttrs attrs{
        .powers = powers, .log2 = log2, .direction = Direction::backward, .subgraph = subgraph};
    ValueIds operands = {inputs[i]};
    operands.insert(operands.end(), inputs.begin(), inputs.end());
    inside[i] = builder.emit1(OpCode::custom_scale, attrs, operands);
  }
  ValueIds operands = {f(builder, inside)};
  operands.insert(operands.end(), inputs.begin(), inputs.end());
  const CustomScaleAttrs attrs{
      .powers = rules.result.powers, .log2 = rules.result.log2, .subgraph = subgraph};
  return builder.emit1(OpCode::custom_scale, attrs, operands);
}

ValueId delayed_rescale(Builder& builder, ValueId x, std::string_view site,
                        const DynamicRescaleAttrs& attrs) {
  const bool is_logical = builder.graph().phase == Phase::logical;
  const TensorType type{.dtype = is_logical ? Dtype::real : Dtype::f32, .shape = {}};
  const ValueId factor = builder.state(StateUse::rescale_factor, site, type);
  const auto y = builder.emit(OpCode::delayed_rescale, attrs, {x, factor});
  if (attrs.direction == Direction::forward) builder.next(factor, y[DelayedRescale::next_factor]);
  return y[DelayedRescale::y];
}

}  // namespace octet
