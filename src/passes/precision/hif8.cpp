// hif8: bf16, with the operands of the layers' GEMMs in HiFloat8 (Luo et al. 2024), forward and
// backward alike. Scales per tensor: amax to 15, where the format still has three fraction bits,
// and to 224 for gradients, whose tails are heavier.
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

const Recipe kHif8Recipe = {
    .name = "hif8",
    .help = "bf16 with HiFloat8 operands, forward and backward, in the layers' linears",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = operand_format(Dtype::hif8, false),
                .w = operand_format(Dtype::hif8, false),
                .dy = operand_format(Dtype::hif8, true)},
    .recompute = Recompute::none,
    .state = "f32",
    .apply = apply};

}  // namespace octet
