// Reverse-mode differentiation: Graph -> Graph, Logical phase.
//
// Keeps the forward nodes and outputs, appends the gradient of the scalar output "loss" with
// respect to every parameter, and names it "grad:<parameter>". A parameter that the loss does not
// depend on gets a gradient of zeros. Backward nodes carry the layer and origin of their forward
// node and the role `backward`. Gradients that meet are added in the reverse order of the uses, so
// the order is fixed. Throws Error(invalid_argument) where the output is missing or no scalar, or
// an op on the way has no gradient.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/loss_scale.h"

namespace octet {

struct AutodiffOptions {
  std::string loss = "loss";
  // Inputs to differentiate; empty: every parameter.
  std::vector<std::string> with_respect_to = {};
  LossScalePolicy loss_scale = {};  // gradients are those of the loss times this
};

Graph autodiff(const Graph& graph, const AutodiffOptions& options = {});

}  // namespace octet
