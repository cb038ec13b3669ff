#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {

std::optional<double> constant_of(const NodeView& view, size_t operand) {
  const Node* made = view.graph.producer(view.node.in(operand));
  if (made == nullptr || made->op != OpCode::fill) return std::nullopt;
  return std::get<FillAttrs>(made->attrs).value;
}

const Binding* find_binding(const NodeView& view) {
  for (const auto bindings :
       {gemm_bindings(), row_bindings(), quantize_bindings(), move_bindings(), loss_bindings(),
        reduce_bindings(), update_bindings(), attention_bindings(), rank_bindings()}) {
    for (const Binding& binding : bindings) {
      if (binding.op == view.node.op && binding.applies(view)) return &binding;
    }
  }
  return nullptr;
}

}  // namespace octet::cuda
