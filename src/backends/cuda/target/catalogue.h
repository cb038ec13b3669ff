// What the CUDA back end offers for a node. Choosing needs neither GPU nor module, so that plans
// print anywhere; preparing needs both.
#pragma once

#include <memory>

#include "backends/cuda/target/module.h"
#include "plan/catalogue.h"

namespace octet::cuda {

class CudaCatalogue : public Catalogue {
 public:
  // Without a module, prepare throws Error{device}. `machine`: see MeasuredChoices.
  explicit CudaCatalogue(std::shared_ptr<Module> module = nullptr, std::string machine = "")
      : module_(std::move(module)), machine_(std::move(machine)) {}

  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node) override;
  bool draw(const WeightDraw& what) override;
  MeasuredChoices measured() const override;
  void recall(std::span<const MeasuredChoice> choices) override;

 private:
  std::shared_ptr<Module> module_;
  std::string machine_;
};

}  // namespace octet::cuda
