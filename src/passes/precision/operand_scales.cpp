#include "passes/precision/operand_scales.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "formats/periodic_scale.h"

namespace octet {

ValueId OperandScales::power(int log2) {
  const auto [it, added] = powers_.try_emplace(log2, kNoValue);
  if (added) it->second = b_.fill({}, std::ldexp(1.0, log2));
  return it->second;
}

// delayed_scale and periodic_scale have the same slots.
ValueId OperandScales::from_memory(OpCode op, const Attrs& attrs, ValueId amax, ValueId memory) {
  const auto results = b_.emit(op, attrs, {amax, memory});
  updates_.emplace_back(results[PeriodicScale::next_memory], memory);
  return results[PeriodicScale::scale];
}

ValueId OperandScales::measured(const LinearGroup& group, OperandKind kind, QuantizeAttrs attrs,
                                ValueId amax) {
  attrs.rounding = Rounding::near;  // of the data
  attrs.source = Dtype::f32;
  const auto state = [&](StateUse use, int64_t n) {
    return b_.state(use, group.site(kind), {.dtype = Dtype::f32, .shape = {n}});
  };
  if (has_power_scales(options_.scaling)) attrs.rule = ScaleRule::power_ceil;
  const PeriodicScaleAttrs periodic{.q = attrs, .period = kRescalePeriod};
  switch (options_.scaling) {
    case Scaling::none:
      return power(0);
    case Scaling::periodic:
      return from_memory(OpCode::periodic_scale, periodic, amax,
                         state(StateUse::rescale_factor, kScaleMemory));
    case Scaling::power: {
      const std::vector<ValueId> operands{amax, b_.fill({kScaleMemory}, 0)};
      return b_.emit(OpCode::periodic_scale, periodic, operands)[PeriodicScale::scale];
    }
    case Scaling::delayed:
      if (kind == OperandKind::w) break;
      return from_memory(OpCode::delayed_scale, attrs, amax,
                         state(StateUse::amax_history, kAmaxHistory));
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
