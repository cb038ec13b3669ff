// Depthwise convolutions as recipes see them. A network has them as sums of products, each of a
// place of the windows (a slice of the picture, cut behind a reshape that gives it its extents) and
// of a column of the weight, repeated over the pixels; no GEMM.
#pragma once

#include <map>
#include <utility>

#include "passes/precision/linear_groups.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

// Operands of a product of the forward pass: the weight, and the picture that its windows are cut
// from; kNoValue both where the node is no such product of a layer.
struct DepthwiseProduct {
  ValueId weight = kNoValue, picture = kNoValue;
};
DepthwiseProduct depthwise_product(const Graph& graph, const Node& node);

// Windows and columns again, cut from other pictures and weights. Each of a source and of what
// stands in its place once.
class Windows {
 public:
  explicit Windows(Rewriter& rewriter) : rewriter_(rewriter) {}

  // New value of `operand`, a value of the old graph, where `source`, which it is cut from, is
  // `value` of the new one.
  ValueId of(ValueId operand, ValueId source, ValueId value);

 private:
  Rewriter& rewriter_;
  std::map<std::pair<ValueId, ValueId>, ValueId> cut_;
};

}  // namespace octet
