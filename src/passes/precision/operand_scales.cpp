#include "passes/precision/operand_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace octet {

ValueId OperandScales::of(const LinearOperand& operand) {
  const Dtype dtype = operand.format().dtype;
  if (operand.kind == OperandKind::w) {
    const Node* stored = stored_weight(rewriter_.from(), operand.value, dtype);
    if (stored != nullptr) return rewriter_.map(stored->in(Dequantize::scale));
  }
  const ScaleSharers sharers = groups_.sharers(operand);
  const auto [it, is_new] = scales_.try_emplace({sharers.key, operand.kind, dtype}, kNoValue);
  if (is_new) it->second = make(operand, sharers.values);
  return it->second;
}

ValueId OperandScales::make(const LinearOperand& operand, const ValueIds& sharers) {
  const auto& [scaling, known, detects_overflow] = options_;
  const bool is_weight = operand.kind == OperandKind::w;
  if (!known.empty()) return predicted(operand);
  if (is_weight && kept_.keeps_weights(operand.group)) return kept_.scale(operand.group);
  if (scaling == Scaling::stored) return periodic_state(operand.site());
  if (scaling == Scaling::none && is_weight) return power(0);
  const ValueId maximum = amax(sharers);
  const ValueId scale = measured(operand, maximum);
  if (detects_overflow && operand.kind == OperandKind::dy && scaling != Scaling::current)
    flags_.push_back(overflow(operand.format().dtype, maximum, scale));
  return scale;
}

ValueId OperandScales::measured(const LinearOperand& operand, ValueId amax) {
  AmaxScaleAttrs attrs{.target = operand.format().target};
  if (are_powers()) attrs.rule = ScaleRule::power_ceil;
  switch (options_.scaling) {
    case Scaling::none:
      return power(0);
    case Scaling::periodic: {
      const ValueId before = periodic_state(operand.site());
      const ValueId scale = b_.emit1(OpCode::periodic_scale, attrs, {amax, before});
      updates_.emplace_back(before, scale);
      return scale;
    }
    case Scaling::power:
      return b_.emit1(OpCode::periodic_scale, attrs, {amax, power(0)});
    case Scaling::delayed: {
      if (operand.kind == OperandKind::w) break;
      const ValueId history = b_.state(StateUse::amax_history, operand.site(),
                                       {.dtype = Dtype::f32, .shape = {kAmaxHistory}});
      const auto results = b_.emit(OpCode::delayed_scale, attrs, {amax, history});
      updates_.emplace_back(history, results[DelayedScale::next_history]);
      return results[DelayedScale::scale];
    }
    case Scaling::current:
    case Scaling::stored:
      break;
  }
  return b_.emit1(OpCode::quant_scale, attrs, {amax});
}

ValueId OperandScales::amax(const ValueIds& values) {
  const auto [it, is_new] = maxima_.try_emplace(rewriter_.map(values), kNoValue);
  if (!is_new) return it->second;
  const auto results = b_.emit(OpCode::amax, NoAttrs{}, it->first);
  flags_.push_back(results[AmaxOp::nonfinite]);
  return it->second = results[AmaxOp::amax];
}

double OperandScales::limit(const LinearOperand& operand) const {
  if (options_.scaling != Scaling::stored) return 0;
  const bool is_overflow = options_.detects_overflow && operand.kind == OperandKind::dy;
  return static_cast<double>(is_overflow ? largest_unsaturated(operand.format().dtype)
                                         : std::numeric_limits<float>::max());
}

ValueId OperandScales::product(ValueId a, ValueId b) {
  const auto x = filled_with(b_.graph(), a), y = filled_with(b_.graph(), b);
  return x && y ? power(std::ilogb(*x * *y)) : b_.mul(a, b);
}

void OperandScales::add_flag(Builder& builder) const {
  if (flags_.empty()) return;
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = std::string(kQuantizerFlag)};
  builder.output(std::string(kQuantizerFlag), builder.emit1(OpCode::any_of, NoAttrs{}, flags_));
}

// True if the cast would saturate (a bool scalar), by the values that it reads.
ValueId OperandScales::overflow(Dtype dtype, ValueId amax, ValueId scale) {
  const ValueId scaled = b_.div(amax, scale);
  const ValueId limit = b_.fill({}, static_cast<double>(largest_unsaturated(dtype)));
  return b_.less(limit, scaled);
}

// A constant with which data lie in the middle of where their format keeps its signal-to-noise
// ratio.
ValueId OperandScales::predicted(const LinearOperand& operand) {
  const OperandKind kind = operand.kind;
  double rms = -std::numeric_limits<double>::infinity();
  const LinearGroup& group = operand.group;
  const bool is_weight = kind == OperandKind::w;
  for (const std::string& member : is_weight ? group.of_scale->scaled_members : group.members) {
    const LinearRms& of = options_.predicted.at(member);
    rms = std::max(rms, kind == OperandKind::x ? of.x : kind == OperandKind::w ? of.w : of.dy);
  }
  return power(predicted_scale(rms, operand.format().dtype));
}

ValueId OperandScales::periodic_state(const std::string& site) {
  const GraphInput* input = b_.graph().find_input(state_name(StateUse::rescale_factor, site));
  if (input != nullptr) return input->value;
  return b_.state(StateUse::rescale_factor, site, {Dtype::f32, {}});
}

// f32[] 2^log2, one node a power.
ValueId OperandScales::power(int log2) {
  const auto [it, is_new] = powers_.try_emplace(log2, kNoValue);
  if (is_new) it->second = b_.fill({}, std::ldexp(1.0, log2));
  return it->second;
}

}  // namespace octet
