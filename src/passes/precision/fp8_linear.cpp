// fp8_linear: bf16, with the three GEMMs of each linear inside the layers on eight-bit codes
// (Micikevicius et al. 2022): inputs and weights E4M3, output gradients E5M2, one scale per tensor.
// Activations stay BF16; the transposed codes of x are kept for wgrad.
#include "passes/precision/list.h"

namespace octet {

const Recipe kFp8LinearRecipe = {
    .name = "fp8_linear",
    .help = "bf16 with E4M3 x E4M3 forward and E5M2 gradients in the layers' linears",
    .linears = tensor_linears(Dtype::e4m3, Dtype::e5m2),
    .apply = apply_quantized_linears};

}  // namespace octet
