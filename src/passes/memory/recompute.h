// Computes again in the backward pass what is cheap to compute again, instead of keeping it.
//
// Where a backward node of a layer reads a forward result of an op that is cheap (norms, gated
// activations, GELU, quantizers with a given scale), the op is repeated right before the first such
// node, from operands that are kept anyway or are repeated themselves. Statistics (1/rms,
// log-sum-exp) and scales are kept: they are small.
#pragma once

#include "ir/graph.h"

namespace octet {

enum class Recompute : uint8_t { none, cheap };
std::string_view enum_name(Recompute recompute);

// Layers [0, n_layers) only; negative: all.
Graph recompute_cheap(const Graph& graph, int n_layers = -1);

}  // namespace octet
