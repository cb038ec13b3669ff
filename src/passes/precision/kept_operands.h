// Operands of linears that are kept in eight bits once the GEMM that they were made for is done.
//
// Of weights, from one update to the next, by WeightCopy: derived inputs, which outputs that update
// them make from the parameters.
//   scale      "copy_scale:<group>", f32[]: one for the group's weights, of their amax of now
//   per_step   codes too: "copy:<weight>" (by row), "copy_t:<weight>" (transposed), as GEMMs read
//              them
//   w_only     the codes that the forward GEMM reads; the other layout is made of them
// Where scales are predicted they are constants, and codes alone are kept. Nothing is kept of
// weights in blocks, nor of those that are dequantized. refresh() makes what GEMMs have asked for.
// Of x, from the forward pass to wgrad, where KeepOptions::x: what wgrad reads, transposed or in
// groups of tokens; of groups whose scales are powers of two nothing.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "passes/precision/linear_groups.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

struct KeepOptions {
  WeightCopy weights = WeightCopy::per_use;
  bool x = true;  // false: the backward pass makes it from x
};

// A state, and the value that is its next one.
using StateUpdates = std::vector<std::pair<ValueId, ValueId>>;

class KeptOperands {
 public:
  KeptOperands(Rewriter& rewriter, const LinearGroups& groups, KeepOptions options)
      : rewriter_(rewriter), groups_(groups), options_(options) {}

  bool keeps_weights(const LinearGroup& group) const;
  bool keeps_codes(const LinearGroup& group) const {
    return octet::keeps_codes(options_.weights) && keeps_weights(group);
  }
  // Scale of a group whose weights are kept, as the last update left it.
  ValueId scale(const LinearGroup& group);
  // Codes of a weight with this scale, in a group whose codes are kept, lying as `type` says. Asked
  // for once a layout.
  ValueId codes(ValueId weight, const QuantizeAttrs& attrs, const ResultType& type, ValueId scale);
  // Behind all GEMMs of a graph that trains.
  StateUpdates refresh();

  // True if x as wgrad reads it is made in the forward pass.
  bool keeps_x(const OperandFormat& wgrad) const {
    return options_.x && groups_.has_backward() &&
           (!wgrad.is_block() || wgrad.granularity.scale == Dtype::f32);
  }

 private:
  struct Copy {
    ValueId value;  // the derived input
    QuantizeAttrs attrs;
    ValueId scale;
  };
  void refresh_codes(const std::vector<Copy>& copies, ValueId weight, ValueId scale,
                     StateUpdates& updates);

  Rewriter& rewriter_;
  Builder& b_ = rewriter_.builder();
  const LinearGroups& groups_;
  const KeepOptions options_;
  std::map<const LinearGroup*, ValueId> scales_;
  std::map<ValueId, std::vector<Copy>> copies_;  // by weight
};

}  // namespace octet
