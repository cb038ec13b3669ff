#include "backends/cuda/target/bind/binding.h"

namespace octet::cuda {

std::optional<double> constant_of(const NodeView& view, size_t operand) {
  return filled_with(view.graph, view.node.in(operand));
}

std::vector<int64_t> list_operands(const NodeView& view, size_t first) {
  std::vector<int64_t> list;
  for (size_t i = first; i < view.node.operands.size(); ++i) {
    list.push_back(view.in(i).n_elems());
    list.push_back(static_cast<int64_t>(view.in(i).dtype));
  }
  return list;
}

std::span<const KernelRow* const> all_rows() {
  static const auto all = [] {
    std::vector<const KernelRow*> rows;
    for (const auto bindings :
         {gemm_bindings(), row_bindings(), quantize_bindings(), move_bindings(), picture_bindings(),
          loss_bindings(), reduce_bindings(), update_bindings(), attention_bindings(),
          gated_delta_bindings(), rank_bindings()}) {
      for (const Binding& binding : bindings) rows.push_back(&binding.row);
    }
    return rows;
  }();
  return all;
}

const Binding& binding_of(const KernelRow& row) {
  static_assert(std::is_standard_layout_v<Binding>);  // the row lies where its binding does
  return reinterpret_cast<const Binding&>(row);
}

}  // namespace octet::cuda
