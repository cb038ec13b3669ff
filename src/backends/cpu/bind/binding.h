// A binding joins one op of the graph to one fast kernel: when it applies, what scratch it needs,
// how it is prepared. One file per family in this folder; binding.cpp names them all. Where none
// applies, the reference kernel runs.
#pragma once

#include <span>

#include "backends/cpu/rope/rope_tables.h"
#include "base/thread_pool.h"
#include "comm/group.h"
#include "plan/catalogue.h"
#include "plan/node_view.h"

namespace octet::cpu {

// What the prepared kernels of one catalogue share.
struct Context {
  ThreadPool& pool;
  Group* group = nullptr;  // of ranks; nullptr: this is the only one
  RopeTables rope_tables = {};
};

struct Binding {
  OpCode op;
  bool (*applies)(const NodeView& view);
  int64_t (*scratch_bytes)(const NodeView& view, int n_threads);  // nullptr: none
  LaunchFn (*prepare)(const NodeView& view, Context& context);
};

// Every family's bindings.
std::span<const Binding> gemm_bindings();
std::span<const Binding> elementwise_bindings();
std::span<const Binding> layer_bindings();
std::span<const Binding> norm_bindings();
std::span<const Binding> update_bindings();
std::span<const Binding> quantize_bindings();
std::span<const Binding> quantize_layer_bindings();
std::span<const Binding> stored_bindings();
std::span<const Binding> move_bindings();
std::span<const Binding> rank_bindings();

// nullptr where no fast kernel applies.
const Binding* find_binding(const NodeView& view);
// The same of what ranks do together alone, which has no other kernels.
const Binding* find_rank_binding(const NodeView& view);

}  // namespace octet::cpu
