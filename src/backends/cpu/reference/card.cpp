#include "backends/cpu/reference/card.h"

#include "ir/builder.h"
#include "plan/tensor_gemm.h"

namespace octet::reference {
namespace {

bool makes_few_rows(const Graph& graph, const Node& node) {
  const ValueId c = node.in(Gemm::c);
  return has_few_rows(graph, node) && (c == kNoValue || !is_bias_row(graph.type(c)));
}
bool is_tanh(const Node& node) {
  return std::get<GeluAttrs>(node.attrs).kind == GeluKind::tanh;
}
// Of no codes, or of those that norm_grad has a form for.
bool is_summed_so(const Graph& graph, const Node& node) {
  const TensorType& x = graph.type(node.in(op_def(node.op).scales[0].operand));
  return !x.is_scaled() || (x.dtype == Dtype::e4m3 && x.has(Granularity::Kind::group) &&
                            x.granularity.size == 16 && x.granularity.scale == Dtype::bf16);
}
bool knows_statistics(const Node& node) {
  return node.in(node.op == OpCode::rms_norm ? SlotId{RmsNorm::known_rstd}
                                             : SlotId{LayerNorm::known_rstd}) != kNoValue;
}

}  // namespace

// Amax and codes are steps of their own; known statistics leave no sum. What a layer that is
// quantized reads in groups, other kernels sum.
Kernel card_kernel(const Graph& graph, const Node& node) {
  if (node.op == OpCode::gemm) return makes_few_rows(graph, node) ? card_few_rows : nullptr;
  if (emits_amax(node.attrs)) return nullptr;
  if (node.op == OpCode::rms_norm_grad && is_summed_so(graph, node)) return card_rms_norm_grad;
  if (node.op == OpCode::layer_norm_grad && is_summed_so(graph, node)) return card_layer_norm_grad;
  if (reads_quantized(graph, node)) return nullptr;
  switch (node.op) {
    case OpCode::rms_norm:
      return knows_statistics(node) ? nullptr : card_rms_norm;
    case OpCode::layer_norm:
      return knows_statistics(node) ? nullptr : card_layer_norm;
    case OpCode::gated_act:
      return card_gated_act;
    case OpCode::gated_act_grad:
      return card_gated_act_grad;
    case OpCode::gelu:
      return is_tanh(node) ? card_gelu : nullptr;
    case OpCode::gelu_grad:
      return is_tanh(node) ? card_gelu_grad : nullptr;
    case OpCode::rope:
      return card_rope;
    case OpCode::cross_entropy:
      return card_cross_entropy;
    case OpCode::cross_entropy_grad:
      return card_cross_entropy_grad;
    case OpCode::global_norm:
      return card_global_norm;
    default:
      return nullptr;
  }
}

}  // namespace octet::reference
