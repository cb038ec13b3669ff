// bf16: BF16 weights, activations and gradients; statistics, softmax and loss in f32.
#include "passes/precision/list.h"

namespace octet {
namespace {

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  return assign_types(graph, recipe.compute, options.gradient);
}

}  // namespace

const Recipe kBf16Recipe = {
    .name = "bf16",
    .help = "BF16 weights, activations and gradients; statistics, softmax and loss in f32",
    .compute = Dtype::bf16,
    .linears = {.quantized = false, .x = {}, .w = {}, .dy = {}},
    .recompute = Recompute::none,
    .state = "f32",
    .apply = apply};

}  // namespace octet
