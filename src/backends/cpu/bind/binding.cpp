#include "backends/cpu/bind/binding.h"

#include <type_traits>

namespace octet::cpu {
namespace {

using Family = std::span<const Binding> (*)();

std::vector<const KernelRow*> gather(std::initializer_list<Family> families) {
  std::vector<const KernelRow*> rows;
  for (const Family family : families) {
    for (const Binding& binding : family()) rows.push_back(&binding.row);
  }
  return rows;
}

}  // namespace

std::span<const KernelRow* const> kernel_rows(Isa isa) {
  static const auto scalar = gather({rank_bindings, tensor_sum_bindings, reference_bindings});
  static const auto all =
      gather({rank_bindings, tensor_sum_bindings, gemm_bindings, elementwise_bindings,
              layer_bindings, norm_bindings, update_bindings, quantize_bindings, row_layer_bindings,
              move_bindings, picture_bindings, widened_bindings, reference_bindings});
  return isa == Isa::scalar ? scalar : all;
}

const Binding& binding_of(const KernelRow& row) {
  static_assert(std::is_standard_layout_v<Binding>);  // the row lies where its binding does
  return reinterpret_cast<const Binding&>(row);
}

}  // namespace octet::cpu
