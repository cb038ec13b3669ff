// One node on a device whose kernels are proved.
#pragma once

#include <memory>
#include <string>

#include "plan/backend.h"
#include "runtime/bound_graph.h"

namespace octet {

struct ProofDevice {
  std::unique_ptr<BoundGraph> alone;
  // The words of the device's library where it has no algorithm whose sums are those that its
  // catalogue asks for (Target::arithmetic). The kernel then has sums of its own.
  std::string why_own_sums = {};
};

// Throws as BoundGraph does where the kernel cannot be had with any sums, and RowUnavailable where
// another row may take the node. `graph` outlives the result.
ProofDevice prepare_proof(const Graph& graph, const Backend& device);

}  // namespace octet
