// Makes the scales of linears' operands, a scale a tensor: measured as Scaling says, or predicted.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/quantize_linears.h"

namespace octet {

class OperandScales {
 public:
  OperandScales(Builder& builder, const QuantizeLinearsOptions& options)
      : b_(builder), options_(options) {}

  // From the amax of what shares it, which is mapped to `target`.
  ValueId measured(const LinearGroup& group, OperandKind kind, double target, ValueId amax);
  // Where that takes no amax; kNoValue elsewhere.
  ValueId known(const LinearGroup& group, OperandKind kind);
  // QuantizeAttrs::limit of data that nothing measures: of what is not finite, and where overflow
  // is detected, of gradients that would saturate. 0 elsewhere.
  double limit(Dtype dtype, OperandKind kind) const;
  // Whether the cast would saturate (a bool scalar), by the values that it reads.
  ValueId overflow(Dtype dtype, ValueId amax, ValueId scale);
  // A constant with which data lie in the middle of where their format keeps its signal-to-noise
  // ratio.
  ValueId predicted(const LinearGroup& group, OperandKind kind, Dtype dtype);
  // f32[] 2^log2, one node a power.
  ValueId power(int log2);

  // Next values of states, each with the state that it updates.
  const std::vector<std::pair<ValueId, ValueId>>& updates() const { return updates_; }

 private:
  ValueId stored(const LinearGroup& group, OperandKind kind);

  Builder& b_;
  const QuantizeLinearsOptions& options_;
  std::map<int, ValueId> powers_;
  std::vector<std::pair<ValueId, ValueId>> updates_;
};

}  // namespace octet
