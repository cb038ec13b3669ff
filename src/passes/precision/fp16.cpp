// fp16: FP16 storage, f32 arithmetic, no loss scaling.
#include "passes/precision/list.h"

namespace octet {
namespace {

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  const Dtype gradient = options.gradient == Dtype::bf16 ? Dtype::fp16 : options.gradient;
  return store_frozen(assign_types(graph, recipe.compute, gradient), options.frozen);
}

}  // namespace

const Recipe kFp16Recipe = {.name = "fp16",
                            .help = "FP16 storage, f32 arithmetic, no loss scaling",
                            .compute = Dtype::fp16,
                            .linears = {.quantized = false, .x = {}, .w = {}, .dy = {}},
                            .recompute = Recompute::none,
                            .state = "f32",
                            .apply = apply};

}  // namespace octet
