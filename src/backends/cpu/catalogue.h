// The kernels of the CPU, by its rows (bind/binding.h).
#pragma once

#include <map>
#include <string>

#include "backends/cpu/bind/binding.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "base/thread_pool.h"
#include "plan/catalogue.h"

namespace octet::cpu {

class CpuCatalogue : public Catalogue {
 public:
  CpuCatalogue(Isa isa, RowSums rows, ThreadPool& pool, Group* group = nullptr);
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node) override;
  void strike(std::string row) override;

 private:
  RowSums rows_;
  Context context_;
  // Choices by the text of op, attributes and types: layers repeat themselves, and asking a library
  // for its scratch is slow.
  mutable std::map<std::string, KernelChoice> choices_;
};

}  // namespace octet::cpu
