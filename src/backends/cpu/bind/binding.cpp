#include "backends/cpu/bind/binding.h"

#include <algorithm>

namespace octet::cpu {

bool NodeView::in_is(size_t i, std::initializer_list<Dtype> dtypes) const {
  return !has(i) || std::find(dtypes.begin(), dtypes.end(), in(i).dtype) != dtypes.end();
}

bool NodeView::out_is(size_t i, std::initializer_list<Dtype> dtypes) const {
  return std::find(dtypes.begin(), dtypes.end(), out(i).dtype) != dtypes.end();
}

const Binding* find_binding(const NodeView& view) {
  for (const auto bindings :
       {gemm_bindings(), elementwise_bindings(), layer_bindings(), update_bindings(),
        quantize_bindings(), stored_bindings(), move_bindings()}) {
    for (const Binding& binding : bindings) {
      if (binding.op == view.node.op && binding.applies(view)) return &binding;
    }
  }
  return nullptr;
}

}  // namespace octet::cpu
