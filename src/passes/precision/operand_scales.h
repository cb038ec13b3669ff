// Source of the scale of a linear's operand, where it has one scale: f32[], made where the
// first GEMM asks for it and shared as LinearGroups says. The first of these that there is:
//
//   stored with its data        of a weight that is frozen in eight bits
//   a constant                  predicted (ScaleOptions)
//   a derived input             of weights that are kept (kept_operands.h)
//   a state                     Scaling::stored: as the last step that measures left it
//   1                           none; x and gradients are measured all the same, for the flag
//   amax -> quant_scale         current; and of weights, delayed
//   amax -> delayed_scale       delayed: of the last kAmaxHistory steps, a state
//   amax -> periodic_scale      powers of two. periodic: a state, measured by this step; power: now
// Every amax's flag is gathered into the output "quantizer_flag". Where there is no amax, codes of
// what is not finite are NaN (limit), which reaches the gradients.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "passes/precision/kept_operands.h"

namespace octet {

struct ScaleOptions {
  Scaling scaling = Scaling::current;
  // By member_name; not empty: scales are constants made of these, and nothing is measured.
  std::map<std::string, LinearRms> predicted = {};
  // Gradients that a scale not of this step saturates are flagged, as what is not finite is: the
  // values themselves are looked at, before the cast.
  bool detects_overflow = false;

  // True if no gradient is measured, so that no GEMM waits for those of its group's other members.
  bool are_known() const { return !predicted.empty() || scaling == Scaling::stored; }
};

class OperandScales {
 public:
  OperandScales(Rewriter& rewriter, const LinearGroups& groups, const ScaleOptions& options,
                KeptOperands& kept)
      : rewriter_(rewriter), groups_(groups), options_(options), kept_(kept) {}

  ValueId of(const LinearOperand& operand);
  bool are_powers() const { return has_power_scales(options_.scaling); }
  // Amax of values of the old graph, which the step's flag tells of; one node for the same values.
  ValueId amax(const ValueIds& values);
  // QuantizeAttrs::limit of data that nothing measures: of what is not finite, and where overflow
  // is detected, of gradients that would saturate. 0 elsewhere.
  double limit(const LinearOperand& operand) const;
  // The product of two scalar factors; of powers of two that are constants, another constant.
  ValueId product(ValueId a, ValueId b);

  // Into the graph that the rewriter made: next values of states; and the flag, if there is any.
  const StateUpdates& updates() const { return updates_; }
  void add_flag(Builder& builder) const;

 private:
  ValueId make(const LinearOperand& operand, const ValueIds& sharers);
  ValueId measured(const LinearOperand& operand, ValueId amax);
  ValueId predicted(const LinearOperand& operand);
  ValueId periodic_state(const std::string& site);
  ValueId overflow(Dtype dtype, ValueId amax, ValueId scale);
  ValueId power(int log2);

  Rewriter& rewriter_;
  Builder& b_ = rewriter_.builder();
  const LinearGroups& groups_;
  const ScaleOptions& options_;
  KeptOperands& kept_;
  std::map<std::tuple<ValueId, OperandKind, Dtype>, ValueId> scales_;  // by ScaleSharers::key
  std::map<ValueIds, ValueId> maxima_;
  std::map<int, ValueId> powers_;
  ValueIds flags_;
  StateUpdates updates_;
};

}  // namespace octet
