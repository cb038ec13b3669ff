#include "passes/precision/operand_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octet {

ValueId OperandScales::power(int log2) {
  const auto [it, added] = powers_.try_emplace(log2, kNoValue);
  if (added) it->second = b_.fill({}, std::ldexp(1.0, log2));
  return it->second;
}

ValueId OperandScales::stored(const LinearGroup& group, OperandKind kind) {
  const std::string site = group.site(kind);
  const GraphInput* input = b_.graph().find_input(state_name(StateUse::rescale_factor, site));
  if (input != nullptr) return input->value;
  return b_.state(StateUse::rescale_factor, site, {Dtype::f32, {}});
}

ValueId OperandScales::known(const LinearGroup& group, OperandKind kind) {
  if (options_.scaling == Scaling::stored) return stored(group, kind);
  const bool is_one = options_.scaling == Scaling::none && kind == OperandKind::w;
  return is_one ? power(0) : kNoValue;
}

double OperandScales::limit(Dtype dtype, OperandKind kind) const {
  if (options_.scaling != Scaling::stored) return 0;
  const bool is_overflow = options_.detects_overflow && kind == OperandKind::dy;
  return static_cast<double>(is_overflow ? largest_unsaturated(dtype)
                                         : std::numeric_limits<float>::max());
}

ValueId OperandScales::measured(const LinearGroup& group, OperandKind kind, double target,
                                ValueId amax) {
  AmaxScaleAttrs attrs{.target = target};
  if (has_power_scales(options_.scaling)) attrs.rule = ScaleRule::power_ceil;
  switch (options_.scaling) {
    case Scaling::none:
      return power(0);
    case Scaling::stored:
      return stored(group, kind);
    case Scaling::periodic: {
      const ValueId before = stored(group, kind);
      const ValueId scale = b_.emit1(OpCode::periodic_scale, attrs, {amax, before});
      updates_.emplace_back(scale, before);
      return scale;
    }
    case Scaling::power:
      return b_.emit1(OpCode::periodic_scale, attrs, {amax, power(0)});
    case Scaling::delayed: {
      if (kind == OperandKind::w) break;
      const ValueId history = b_.state(StateUse::amax_history, group.site(kind),
                                       {.dtype = Dtype::f32, .shape = {kAmaxHistory}});
      const auto results = b_.emit(OpCode::delayed_scale, attrs, {amax, history});
      updates_.emplace_back(results[DelayedScale::next_history], history);
      return results[DelayedScale::scale];
    }
    case Scaling::current:
      break;
  }
  return b_.emit1(OpCode::quant_scale, attrs, {amax});
}

ValueId OperandScales::overflow(Dtype dtype, ValueId amax, ValueId scale) {
  const ValueId scaled = b_.div(amax, scale);
  const ValueId limit = b_.fill({}, static_cast<double>(largest_unsaturated(dtype)));
  return b_.emit1(OpCode::less, NoAttrs{}, {limit, scaled});
}

ValueId OperandScales::predicted(const LinearGroup& group, OperandKind kind, Dtype dtype) {
  double rms = -std::numeric_limits<double>::infinity();
  for (const std::string& member : group.members) {
    const LinearRms& of = options_.predicted.at(member);
    rms = std::max(rms, kind == OperandKind::x ? of.x : kind == OperandKind::w ? of.w : of.dy);
  }
  return power(predicted_scale(rms, dtype));
}

}  // namespace octet
