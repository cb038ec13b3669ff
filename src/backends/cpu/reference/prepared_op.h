// An op on operands of known types, to be called any number of times: its scalar kernel, or where
// it has none (OpRow::is_composed) its decomposition, step by step.
//
// What a decomposition computes in f32, or in what it leaves open, are doubles that nothing rounds;
// only a narrower dtype that it names rounds. So results are exact until the caller rounds them.
// With a card's arithmetic they are as the card computes them: f32 rounds at each step, and where
// the card has an order of its own, that is taken (card.h).
#pragma once

#include "backends/cpu/reference/reference.h"
#include "base/arithmetic.h"
#include "plan/plan.h"

namespace octet::reference {

class PreparedOp {
 public:
  PreparedOp(const Graph& graph, const Node& node, Arithmetic arithmetic = Arithmetic::own);

  // The doubles that a call takes as scratch memory, for values between the steps.
  int64_t n_scratch() const { return n_scratch_; }
  // Operands and results by slot, none of which may lie in another.
  void operator()(std::span<const RefTensor> in, std::span<RefTensor> out, double* scratch) const;

 private:
  void decompose(const Graph& graph, const Node& node);
  void place_values();
  std::vector<size_t> share_buffers(std::vector<Buffer>& buffers) const;

  Attrs attrs_;
  Arithmetic arithmetic_;
  Kernel kernel_;  // nullptr: the steps
  Graph parts_;
  ValueIds operands_, results_;    // values of parts_ by slot
  std::vector<PreparedOp> steps_;  // its nodes
  // Offsets of values and of the steps' scratch memory in that of a call.
  std::vector<int64_t> value_offsets_, step_offsets_;
  int64_t n_scratch_ = 0;
};

}  // namespace octet::reference
