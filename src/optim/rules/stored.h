// Rules of f32 primitives over a weight and its states, which are read as f32 and stored as the
// policy says (load_state, store_state; FP16 by rules/rule.cpp). A step that is skipped leaves
// every byte.
#pragma once

#include "optim/rules/rule.h"

namespace octet {

// States of these uses (momentum, moment1, moment2), the master, and what lies beside the states.
std::vector<RuleState> stored_states(const TensorType& weight, const OptimPolicy& policy,
                                     std::span<const StateUse> uses);
// The momentum, if there is one.
std::vector<RuleState> momentum_states(const TensorType& weight, const OptimPolicy& policy);

class StoredUpdate {
 public:
  explicit StoredUpdate(UpdateBuilder& u) : u_(u), weight_(load_weight()) {}

  ValueId weight() const { return weight_.value; }
  // Clipped, and of the loss itself.
  Term gradient() const { return {u_.gradient(), u_.grad_scale()}; }
  ValueId load(StateUse use) { return loaded(use).value; }
  void store(StateUse use, ValueId next);
  // Direction of the weight: g without momentum; else the momentum, to which g comes times `share`
  // and which is stored, or with nesterov g plus its share. dtype: of what is made here.
  Term direction(const Term& g, ValueId share, Dtype dtype = Dtype::f32);
  void store_weight(ValueId next);

 private:
  struct Loaded {
    ValueId value = kNoValue;  // f32
    ValueId scale = kNoValue;  // of what is stored in FP16
  };
  Loaded load_weight();
  const Loaded& loaded(StateUse use);
  // The next value, which a step that is skipped does not take.
  ValueId guarded(const Loaded& old, ValueId next);
  ValueIds stored(ValueId next, const StateAttrs& attrs, ValueId old, ValueId rest = kNoValue);
  StateAttrs attrs_of(StateUse use) const;

  UpdateBuilder& u_;
  Loaded weight_;
  std::map<StateUse, Loaded> loaded_;
};

}  // namespace octet
