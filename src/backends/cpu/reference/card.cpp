#include "backends/cpu/reference/card.h"

#include "ir/builder.h"
#include "ir/ops/quantize_layers.h"
#include "plan/tensor_gemm.h"

namespace octet::reference {
namespace {

using Takes = bool (*)(const Graph& graph, const Node& node);

const TensorType& x_of(const Graph& graph, const Node& node) {
  return graph.type(node.in(op_def(node.op).scales[0].operand));
}

bool has_few_rows_here(const Graph& graph, const Node& node) {
  const ValueId c = node.in(Gemm::c);
  return has_few_rows(graph, node) && (c == kNoValue || !is_bias_row(graph.type(c)));
}
bool reads_values(const Graph& graph, const Node& node) {
  return !reads_quantized(graph, node);
}
// Known statistics leave no sum. What a layer that is quantized reads in groups, other kernels sum.
template <typename Op>
bool makes_statistics(const Graph& graph, const Node& node) {
  return reads_values(graph, node) && node.in(Op::known_rstd) == kNoValue;
}
// True for no codes, or for those that norm_grad has a form for.
bool has_form(const Graph& graph, const Node& node) {
  const TensorType& x = x_of(graph, node);
  return !x.is_scaled() || (x.dtype == Dtype::e4m3 && x.has(Granularity::Kind::group) &&
                            x.granularity.size == 16 && x.granularity.scale == Dtype::bf16);
}

struct CardKernel {
  OpCode op;
  Takes takes;
  Kernel kernel;
};
constexpr CardKernel kCardKernels[] = {
    {OpCode::gemm, has_few_rows_here, card_few_rows},
    {OpCode::rms_norm, makes_statistics<RmsNorm>, card_rms_norm},
    {OpCode::layer_norm, makes_statistics<LayerNorm>, card_layer_norm},
    {OpCode::rms_norm_grad, has_form, card_rms_norm_grad},
    {OpCode::layer_norm_grad, has_form, card_layer_norm_grad},
    {OpCode::rope, reads_values, card_rope},
    {OpCode::cross_entropy, reads_values, card_cross_entropy},
    {OpCode::cross_entropy_grad, reads_values, card_cross_entropy_grad},
    {OpCode::global_norm, reads_values, card_global_norm},
};

}  // namespace

Kernel card_kernel(const Graph& graph, const Node& node) {
  if (emits_amax(node.attrs)) return nullptr;  // a step of its own
  if (is_activation(node.op)) return reads_values(graph, node) ? card_activation : nullptr;
  if (is_activation_gradient(node.op))
    return reads_values(graph, node) ? card_activation_grad : nullptr;
  for (const CardKernel& card : kCardKernels) {
    if (card.op == node.op && card.takes(graph, node)) return card.kernel;
  }
  return nullptr;
}

}  // namespace octet::reference
