#include "backends/cpu/reference/card.h"

#include "ir/builder.h"

namespace octet::reference {
namespace {

bool knows_statistics(const Node& node) {
  return node.in(node.op == OpCode::rms_norm ? SlotId{RmsNorm::known_rstd}
                                             : SlotId{LayerNorm::known_rstd}) != kNoValue;
}

}  // namespace

// Amax and codes are steps of their own; known statistics leave no sum.
Kernel card_kernel(const Graph& graph, const Node& node) {
  if (emits_amax(node.attrs) || reads_quantized(graph, node)) return nullptr;
  switch (node.op) {
    case OpCode::rms_norm:
      return knows_statistics(node) ? nullptr : card_rms_norm;
    case OpCode::layer_norm:
      return knows_statistics(node) ? nullptr : card_layer_norm;
    default:
      return nullptr;
  }
}

}  // namespace octet::reference
