#include "backends/cpu/catalogue.h"

#include "backends/cpu/backend.h"
#include "backends/cpu/bind/binding.h"
#include "backends/cpu/device.h"
#include "base/error.h"
#include "ir/op_def.h"
#include "ir/print.h"
#include "plan/kernel_name.h"

namespace octet::cpu {
namespace {

// Equal for two nodes exactly when they want the same kernel.
std::string choice_key(const NodeView& view) {
  Graph types;
  Node node = view.node;
  node.tag = {};
  for (auto* ids : {&node.operands, &node.results}) {
    for (ValueId& id : *ids) {
      if (id == kNoValue) continue;
      types.values.push_back({.type = view.graph.type(id)});
      id = static_cast<ValueId>(types.values.size()) - 1;
    }
  }
  std::string key = print(types, node);
  for (const Value& value : types.values) key += to_string(value.type);
  return key;
}

}  // namespace

CpuCatalogue::CpuCatalogue(Isa isa, RowSums rows, ThreadPool& pool, Group* group)
    : Catalogue({.backend = "cpu",
                 .architecture = isa_name(isa),
                 .k_major = false,  // a product packs both factors anyway
                 .n_threads = pool.n_threads(),
                 .rows = kernel_rows(isa)}),
      rows_(rows),
      context_{.pool = pool, .group = group} {}

std::optional<KernelChoice> CpuCatalogue::choose(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node, target_};
  const RowSumsScope scope(rows_);
  auto key = choice_key(view);
  if (const auto known = choices_.find(key); known != choices_.end()) return known->second;
  const auto choice = choose_row(view);
  if (!choice) return std::nullopt;
  KernelChoice kernel{.name = kernel_name(view, *choice->row),
                      .scratch_bytes = choice->scratch_bytes,
                      .reference = choice->row->facts.reference,
                      .row = choice->row};
  return choices_.emplace(std::move(key), std::move(kernel)).first->second;
}

LaunchFn CpuCatalogue::prepare(const Graph& graph, const Node& node) {
  const RowSumsScope scope(rows_);
  const auto choice = choose(graph, node);
  if (!choice) throw Error(ErrorCode::internal, "[cpu] no kernel for {}", op_def(node.op).name);
  return binding_of(*choice->row).prepare({graph, node, target_}, context_);
}

void CpuCatalogue::strike(std::string row) {
  Catalogue::strike(std::move(row));
  choices_.clear();
}

Backend make_backend(int n_threads, Isa isa, RowSums rows, Group* group) {
  if (isa != Isa::scalar) limit_isa(isa);
  Backend backend;
  backend.pool = std::make_unique<ThreadPool>(n_threads);
  backend.device = std::make_unique<CpuDevice>(isa, backend.pool->n_threads());
  backend.catalogue = std::make_unique<CpuCatalogue>(isa, rows, *backend.pool, group);
  return backend;
}

}  // namespace octet::cpu
