// A binding is a row of CUDA with the kernel of the module and its parameters. One file per family
// in this folder; binding.cpp names them all. Where no row applies the op is planned as its
// decomposition; a primitive is then an error. Needs no GPU.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cuda/kernel_id.h"
#include "formats/table.h"
#include "plan/kernel_row.h"

namespace octet::cuda {

// A kernel and the bytes of its parameters.
struct KernelSpec {
  KernelId kernel = KernelId::gemm;
  std::vector<std::byte> params;
  std::vector<std::string_view> launches = {};  // KernelChoice::launches
};

// Params is one of the structs of params/*.h; `tail` follows it, for lists of any length.
template <typename Params>
KernelSpec make_spec(KernelId kernel, const Params& params, std::span<const int64_t> tail = {}) {
  static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) % alignof(int64_t) == 0);
  KernelSpec spec{.kernel = kernel,
                  .params = std::vector<std::byte>(sizeof(Params) + tail.size_bytes())};
  std::memcpy(spec.params.data(), &params, sizeof(Params));
  if (!tail.empty()) {
    std::memcpy(spec.params.data() + sizeof(Params), tail.data(), tail.size_bytes());
  }
  return spec;
}

// Spec of parameters for which a file of target/choose says what is launched.
template <typename Params>
KernelSpec chosen_spec(KernelId kernel, Params params, std::span<const int64_t> tail = {}) {
  choose_kernels(params);
  KernelSpec spec = make_spec(kernel, params, tail);
  spec.launches = launches_of(params);
  return spec;
}

// Spec of kernels that have no choice.
inline KernelSpec launching(KernelSpec spec, std::vector<std::string_view> launches) {
  spec.launches = std::move(launches);
  return spec;
}

struct Binding {
  KernelRow row;
  KernelSpec (*spec)(const NodeView& view);
};

// Every family's bindings.
std::span<const Binding> gemm_bindings();
std::span<const Binding> row_bindings();
std::span<const Binding> quantize_bindings();
std::span<const Binding> move_bindings();
std::span<const Binding> picture_bindings();
std::span<const Binding> loss_bindings();
std::span<const Binding> reduce_bindings();
std::span<const Binding> update_bindings();
std::span<const Binding> attention_bindings();
std::span<const Binding> gated_delta_bindings();
std::span<const Binding> rank_bindings();

// The number that an operand is in every step; nothing where it is no constant of the graph.
std::optional<double> constant_of(const NodeView& view, size_t operand);

std::span<const KernelRow* const> all_rows();
// The Binding that makes the parameters of one of them.
const Binding& binding_of(const KernelRow& row);

// [rows, cols] with cols the last axis; a scalar is [1, 1].
inline std::tuple<int64_t, int64_t> matrix_of(const TensorType& type) {
  const int64_t cols = type.shape.empty() ? 1 : type.shape.back();
  return {cols == 0 ? 0 : type.n_elems() / cols, cols};
}

// The length and the dtype of each operand from `first` on, one behind the other.
std::vector<int64_t> list_operands(const NodeView& view, size_t first);

}  // namespace octet::cuda
