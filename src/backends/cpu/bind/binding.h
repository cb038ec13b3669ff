// A binding is a row of the CPU with what prepares its kernel. One file per family in this folder;
// binding.cpp names them all. Where no fast kernel applies, FP16 runs on that of f32 (widened.cpp),
// and all else on the reference (reference.cpp).
#pragma once

#include <span>

#include "backends/cpu/common/isa.h"
#include "backends/cpu/rope/rope_tables.h"
#include "base/thread_pool.h"
#include "comm/group.h"
#include "plan/catalogue.h"
#include "plan/kernel_row.h"

namespace octet::cpu {

// State that the prepared kernels of one catalogue share.
struct Context {
  ThreadPool& pool;
  Group* group = nullptr;  // of ranks; nullptr: this is the only one
  RopeTables rope_tables = {};
};

struct Binding {
  KernelRow row;
  LaunchFn (*prepare)(const NodeView& view, Context& context);  // nullptr: KernelRow::runs_on
};

// A node with FP16 values on a row of f32: KernelChoice::runs_on (widened.cpp).
LaunchFn prepare_widened(const NodeView& view, const KernelRow& row, Context& context);

// Every family's bindings.
std::span<const Binding> tensor_sum_bindings();
std::span<const Binding> gemm_bindings();
std::span<const Binding> elementwise_bindings();
std::span<const Binding> layer_bindings();
std::span<const Binding> norm_bindings();
std::span<const Binding> update_bindings();
std::span<const Binding> quantize_bindings();
std::span<const Binding> row_layer_bindings();
std::span<const Binding> move_bindings();
std::span<const Binding> picture_bindings();
std::span<const Binding> rank_bindings();
std::span<const Binding> widened_bindings();
std::span<const Binding> reference_bindings();

// The rows of an instruction set: of none, what ranks do together, a card's sums and the reference.
std::span<const KernelRow* const> kernel_rows(Isa isa);
// The Binding that prepares a row of them.
const Binding& binding_of(const KernelRow& row);

}  // namespace octet::cpu
