#include "backends/cpu/bind/binding.h"

#include <algorithm>

namespace octet::cpu {

const Binding* find_rank_binding(const NodeView& view) {
  for (const Binding& binding : rank_bindings()) {
    if (binding.op == view.node.op) return &binding;
  }
  return nullptr;
}

const Binding* find_binding(const NodeView& view) {
  if (const Binding* binding = find_rank_binding(view)) return binding;
  for (const auto bindings : {gemm_bindings(), elementwise_bindings(), layer_bindings(),
                              norm_bindings(), update_bindings(), quantize_bindings(),
                              quantize_layer_bindings(), stored_bindings(), move_bindings()}) {
    for (const Binding& binding : bindings) {
      if (binding.op == view.node.op && binding.applies(view)) return &binding;
    }
  }
  return nullptr;
}

}  // namespace octet::cpu
