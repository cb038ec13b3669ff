// Proves the kernels of a run (train/prove_kernels.h) at sizes that take seconds: the run's recipe,
// optimizer and kind of model with few layers and narrow matrices, trained for two steps,
// evaluated, and, where it writes text, used to generate a token over a KV cache. A run of several
// ranks is proved as one rank's; its collectives have a test of their own
// (runtime/rank_self_test.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "nn/model.h"
#include "plan/plan.h"
#include "train/prove_kernels.h"

namespace octet {

// Plans, one after the other, of the functions that train and evaluate at the run's own sizes.
void for_planned_functions(const RunConfig& config, const ModelSpec& spec,
                           const Catalogue& catalogue,
                           const std::function<void(const Plan&)>& visit);
// The kernels of these plans, under the names that plans print, each once and in their order.
std::vector<std::string> planned_kernels(const RunConfig& config, const ModelSpec& spec,
                                         const Catalogue& catalogue);

// Three sizes, one after the other: of whole tiles; of ragged ones, with as much alignment as the
// model's own widths have; of a few hundred tokens. Prover::proofs is filled as they run, so that
// it holds what was proved before an error. Throws as ProvingCatalogue does.
void prove_run(const RunConfig& config, const ModelSpec& spec, const Prover& prover);

}  // namespace octet
