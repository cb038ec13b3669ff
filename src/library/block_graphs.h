// A part of a model for programs that differentiate by themselves (PyTorch): the forward and the
// backward pass of a few ops as two graphs, and what the one keeps for the other.
//
// The passes are those of a training step (compile/functions.h): recipe, recomputation, fusion,
// lowering. So kernels, scales and what is kept are the recipe's own. Scales of weights are taken
// of the weights where they are read; a run takes them behind its update, of the same weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "plan/catalogue.h"

namespace octet {

// A Logical graph without gradients. Its inputs are parameters, or of the kind batch.
struct BlockSource {
  Graph graph;
  std::string recipe = "bf16";
  // Inputs whose gradients are wanted; none: the forward pass alone.
  std::vector<std::string> wanted = {};
  // Outputs that the forward pass does not give, but whose gradients the backward pass reads.
  std::vector<std::string> hidden = {};
  // Outputs that the flag of the forward pass makes NaN, as that of the backward pass makes all
  // gradients (Block).
  std::vector<std::string> quantized = {};
};

// Lowered. Inputs and outputs by name; what is not named here is an input or output of the source.
//   forward   ->   "kept.I.ORIGIN"   what the backward pass reads, the I-th from 0; ORIGIN is the
//                                    module that made it
//   backward  <-   "kept.I.ORIGIN", "d.OUTPUT": of each output, hidden ones too
//             ->   "grad:INPUT"
// "forward_flag", "backward_flag" (bool): that a quantizer met NaN or infinity; absent where
// nothing is quantized.
struct BlockGraphs {
  Graph forward, backward;  // backward: without nodes and outputs where nothing is wanted
};
inline constexpr std::string_view kKept = "kept.", kOutputGradient = "d.",
                                  kForwardFlag = "forward_flag", kBackwardFlag = "backward_flag";

// Throws Error{invalid_argument} for recipes that keep states between steps (amax histories, scales
// of before), names that are not there, and what no kernel takes.
BlockGraphs block_graphs(const BlockSource& source, const Catalogue& catalogue);

}  // namespace octet
