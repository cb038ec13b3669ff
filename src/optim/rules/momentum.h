// Rules of f32 primitives over a weight and its momentum, which are read as f32 and stored as the
// policy says (load_state, store_state; FP16 by rules/half.cpp). A step that is skipped leaves
// every byte.
#pragma once

#include "optim/rules/rule.h"

namespace octet {

// The momentum, the master, and what lies beside the momentum.
std::vector<RuleState> momentum_states(const TensorType& weight, const OptimPolicy& policy);

class MomentumUpdate {
 public:
  explicit MomentumUpdate(UpdateBuilder& u);

  ValueId weight() const { return weight_.value; }
  ValueId momentum() const { return momentum_.value; }
  // Clipped, and of the loss itself.
  ValueId gradient();
  ValueId times(ValueId x, ValueId factor);
  ValueId times(ValueId x, double factor) { return times(x, u_.constant(factor)); }
  // What the weight goes along: g without momentum; else the momentum, to which `added` comes and
  // which is stored, or with nesterov g plus its share.
  ValueId direction(ValueId g, ValueId added);
  void store_weight(ValueId next);
  void store_momentum(ValueId next);

 private:
  struct Loaded {
    ValueId value = kNoValue;  // f32
    ValueId scale = kNoValue;  // of what is stored in FP16
  };
  Loaded load_weight();
  Loaded load_momentum();
  // The next value, which a step that is skipped does not take.
  ValueId guarded(const Loaded& old, ValueId next);
  ValueIds stored(ValueId next, const StateAttrs& attrs, ValueId old, ValueId rest = kNoValue);
  StateAttrs momentum_attrs() const;

  UpdateBuilder& u_;
  Loaded weight_, momentum_;
};

}  // namespace octet
