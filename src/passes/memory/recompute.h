// Computes again in the backward pass what need not be kept.
//
// none:  8-bit data of weights alone, which are quantized again from the weights; and the places of
//        windows that are cut from a picture, which are cut again: of a pooling they would be as
//        many pictures as a window has places.
// cheap: also where a backward node of a layer reads a forward result of a cheap op, the op
//   is repeated right before the first such node, from operands that are kept anyway or are
//   repeated themselves: norms, gated activations, GELU, quantizers with a given scale, and whole
//   windows, the unfolded pictures that a convolution's GEMMs read. Statistics (1/rms, log-sum-exp)
//   and scales are kept: they are small.
// full: every forward result of the layer but scalars (scales) is repeated, from the layer's input.
// Repeated nodes are the same ops on the same operands: the outputs' bits stay.
#pragma once

#include "ir/graph.h"

namespace octet {

enum class Recompute : uint8_t { none, cheap, full };
constexpr auto value_names(Recompute) {
  return name_list("none", "cheap", "full");
}

struct RecomputeOptions {
  Recompute what = Recompute::cheap;
  int n_layers = -1;  // full: of layers [0, n_layers), cheap of the others; negative: of all
};

Graph recompute(const Graph& graph, const RecomputeOptions& options);

inline Graph recompute_cheap(const Graph& graph) {
  return recompute(graph, {});
}

}  // namespace octet
