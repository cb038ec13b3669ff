#include "passes/precision/kept_operands.h"

#include <algorithm>

namespace octet {

bool KeptOperands::keeps_weights(const LinearGroup& group) const {
  const OperandFormat& format = group.tensor_weight();
  const auto is_input = [&](ValueId w) { return rewriter_.from().input_of(w) != nullptr; };
  return options_.weights != WeightCopy::per_use && format.quantized && !format.is_block() &&
         std::ranges::all_of(group.of_scale->scaled_weights, is_input);
}

ValueId KeptOperands::scale(const LinearGroup& group) {
  const auto [it, is_new] = scales_.try_emplace(group.of_scale, kNoValue);
  if (is_new) it->second = b_.state(StateUse::weight_scale, group.of_scale->name, {Dtype::f32, {}});
  return it->second;
}

ValueId KeptOperands::codes(ValueId weight, const QuantizeAttrs& attrs, const ResultType& type,
                            ValueId scale) {
  const bool transposed = type.layout.transposed;
  std::vector<Copy>& copies = copies_[weight];
  if (options_.weights == WeightCopy::w_only && !copies.empty())
    return b_.laid_out(copies.front().value, transposed);
  const StateUse use = transposed ? StateUse::weight_quantized_t : StateUse::weight_quantized;
  const ValueId value = b_.state(use, rewriter_.from().input_of(weight)->name,
                                 {.dtype = type.dtype,
                                  .shape = rewriter_.from().type(weight).shape,
                                  .granularity = type.granularity,
                                  .layout = type.layout});
  copies.push_back({value, attrs, scale});
  return value;
}

StateUpdates KeptOperands::refresh() {
  StateUpdates updates;
  for (const LinearGroup& group : groups_.all()) {
    if (group.of_scale != &group) continue;
    b_.tag = Tag{.layer = -1, .role = Role::update, .origin = group.name};
    ValueId next_scale = kNoValue;
    if (const auto it = scales_.find(&group); it != scales_.end()) {
      const auto amax = b_.emit(OpCode::amax, NoAttrs{}, rewriter_.map(group.scaled_weights));
      const AmaxScaleAttrs attrs{.target = group.tensor_weight().target};
      next_scale = b_.emit1(OpCode::quant_scale, attrs, {amax[AmaxOp::amax]});
      updates.emplace_back(it->second, next_scale);
    }
    for (const ValueId weight : group.scaled_weights) {
      const auto it = copies_.find(weight);
      if (it == copies_.end()) continue;
      const ValueId scale = next_scale == kNoValue ? it->second.front().scale : next_scale;
      refresh_codes(it->second, weight, scale, updates);
    }
  }
  return updates;
}

void KeptOperands::refresh_codes(const std::vector<Copy>& copies, ValueId weight, ValueId scale,
                                 StateUpdates& updates) {
  const auto is_transposed = [&](const Copy& copy) {
    return b_.type(copy.value).layout.transposed;
  };
  ResultTypes types;
  for (const Copy& copy : copies) types.emplace_back(b_.type(copy.value));
  if (is_transposed(copies[0])) std::ranges::reverse(types);
  const bool both = copies.size() == 2;
  const auto codes = b_.emit_typed(both ? OpCode::quantize_both : OpCode::quantize, copies[0].attrs,
                                   {rewriter_.map(weight), scale}, types);
  for (const Copy& copy : copies)
    updates.emplace_back(copy.value, codes[both && is_transposed(copy) ? 1 : 0]);
}

}  // namespace octet
