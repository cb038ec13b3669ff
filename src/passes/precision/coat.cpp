// coat: fp8_linear whose saved activations are eight bits too (Xi et al., ICLR 2025). The inputs of
// norms and activations are kept as E4M3 groups of 16 with BF16 scales; norm outputs and the gated
// product are computed again in the backward pass from those; optimizer states are E4M3 with
// dynamic range expansion.
#include "passes/precision/list.h"
#include "passes/precision/quantize_linears.h"
#include "passes/precision/store_groups.h"

namespace octet {
namespace {

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  const Graph typed = assign_types(graph, recipe.compute, options.gradient);
  const Graph stored = store_groups(typed);
  return widen_quantizer_inputs(quantize_linears(stored, {.formats = recipe.linears,
                                                          .overrides = options.overrides,
                                                          .scaling = options.scaling,
                                                          .keep_transposed_x = false}));
}

}  // namespace

const Recipe kCoatRecipe = {
    .name = "coat",
    .help = "fp8_linear with activations stored in E4M3 groups and E4M3 optimizer states",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = operand_format(Dtype::e4m3, false),
                .w = operand_format(Dtype::e4m3, false),
                .dy = operand_format(Dtype::e5m2, true)},
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .apply = apply};

}  // namespace octet
