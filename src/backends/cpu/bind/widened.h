// Nodes with FP16 operands or results on the kernels of f32: the operands are decoded, which is
// exact, and each result is rounded once to nearest even, keeping overflow as Inf, when it is
// stored. NaN is the canonical one of FP16.
//
// Scratch: an f32 copy of every FP16 operand and result, then the kernel's own.
#pragma once

#include <optional>

#include "backends/cpu/bind/binding.h"

namespace octet::cpu {

class WidenedNode {
 public:
  // Nothing where the node has no FP16 values, or no fast row applies with f32 in their place.
  static std::optional<WidenedNode> of(const NodeView& view);

  int64_t scratch_bytes() const { return copies_bytes_ + choice_.scratch_bytes; }
  LaunchFn prepare(Context& context) const;

 private:
  explicit WidenedNode(const NodeView& view) : node_(view.node), target_(view.target) {}
  NodeView view() const { return {graph_, node_, target_}; }

  // An FP16 value: its length and where its copy lies in the scratch.
  struct Copy {
    size_t index;
    int64_t n, offset;
  };
  Graph graph_;
  Node node_;
  const Target& target_;
  RowChoice choice_;
  std::vector<Copy> operands_, results_;
  int64_t copies_bytes_ = 0;
};

}  // namespace octet::cpu
