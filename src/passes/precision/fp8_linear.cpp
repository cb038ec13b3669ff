// fp8_linear: bf16, with the three GEMMs of each linear inside the layers on eight-bit codes
// (Micikevicius et al. 2022): inputs and weights E4M3, output gradients E5M2, one scale per tensor.
// Activations stay BF16; the transposed codes of x are kept for wgrad.
#include "passes/precision/list.h"
#include "passes/precision/quantize_linears.h"

namespace octet {
namespace {

Graph apply(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  const Graph typed = assign_types(graph, recipe.compute, options.gradient);
  return widen_quantizer_inputs(quantize_linears(typed, {.formats = recipe.linears,
                                                         .overrides = options.overrides,
                                                         .scaling = options.scaling,
                                                         .keep_transposed_x = true}));
}

}  // namespace

const Recipe kFp8LinearRecipe = {
    .name = "fp8_linear",
    .help = "bf16 with E4M3 x E4M3 forward and E5M2 gradients in the layers' linears",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = operand_format(Dtype::e4m3, false),
                .w = operand_format(Dtype::e4m3, false),
                .dy = operand_format(Dtype::e5m2, true)},
    .recompute = Recompute::none,
    .state = "f32",
    .apply = apply};

}  // namespace octet
