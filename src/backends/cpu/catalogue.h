// The kernels of the CPU: the fast one where a binding applies, else the reference kernel over decoded doubles.
#pragma once

#include "backends/cpu/isa.h"
#include "base/thread_pool.h"
#include "plan/catalogue.h"

namespace octet::cpu {

class CpuCatalogue : public Catalogue {
 public:
  CpuCatalogue(Isa isa, ThreadPool& pool) : isa_(isa), pool_(pool) {}
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node) override;

 private:
  Isa isa_;
  ThreadPool& pool_;
};

}  // namespace octet::cpu
