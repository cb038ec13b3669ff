// fp8_linear: bf16, with the three GEMMs of each linear inside the layers on eight-bit codes
// (Micikevicius et al. 2022): inputs and weights E4M3, output gradients E5M2, one scale per tensor.
// Activations stay BF16; the transposed codes of x are kept for wgrad.
#include "passes/precision/list.h"

namespace octet {

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
    .apply = apply_quantized_linears};

}  // namespace octet
