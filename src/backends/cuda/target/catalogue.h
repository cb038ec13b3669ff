// Kernels of the CUDA back end for a node. Choosing needs neither GPU nor module, so that plans
// print anywhere; preparing needs both.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/cuda/params/gemm_scratch.h"
#include "backends/cuda/target/architecture.h"
#include "backends/cuda/target/module.h"
#include "plan/catalogue.h"

namespace octet::cuda {

struct CatalogueOptions {
  bool deterministic = false;  // scratch for kernels whose results repeat; the module's are chosen
                               // when it is opened
  std::string machine = {};    // see AutotuneCache
  int capability = kPlannedCapability;
  std::string blas = "13", dnn = "9";  // versions, assumed; dnn empty: it is not there
};

class CudaCatalogue : public Catalogue {
 public:
  // Without a module, prepare throws Error{device}.
  explicit CudaCatalogue(CatalogueOptions options, std::shared_ptr<Module> module = nullptr);

  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override;
  LaunchFn prepare(const Graph& graph, const Node& node, const KernelChoice& choice) override;
  bool takes_form(const Graph& graph, const Node& form) const override;
  bool init_weight(const WeightInit& what) override;
  AutotuneCache autotune_cache() const override;
  void use_autotune_cache(std::span<const AutotunedChoice> choices) override;

 private:
  std::string machine_;
  std::shared_ptr<Module> module_;
};

}  // namespace octet::cuda
