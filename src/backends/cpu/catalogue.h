// The kernels of the CPU: the fast one where a binding applies, for FP16 that of f32, else the
// reference kernel over decoded doubles.
#pragma once

#include <map>
#include <string>

#include "backends/cpu/bind/binding.h"
#include "backends/cpu/bind/widened.h"
#include "backends/cpu/common/isa.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/thread_pool.h"
#include "plan/catalogue.h"

namespace octet::cpu {

class CpuCatalogue : public Catalogue {
 public:
  CpuCatalogue(Isa isa, RowSums rows, ThreadPool& pool, Group* group = nullptr)
      : isa_(isa), rows_(rows), context_{.pool = pool, .group = group} {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node) override;
  bool wants_k_major() const override { return false; }  // a product packs both factors anyway

 private:
  const Binding* fast_binding(const NodeView& view) const;
  std::optional<WidenedNode> widened_node(const NodeView& view) const;

  Isa isa_;
  RowSums rows_;
  Context context_;
  // Choices by the text of op, attributes and types: layers repeat themselves, and asking a library
  // for its scratch is slow.
  mutable std::map<std::string, KernelChoice> choices_;
};

}  // namespace octet::cpu
