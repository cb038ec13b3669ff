// hif8: bf16, with the operands of the layers' GEMMs in HiFloat8 (Luo et al. 2024), forward and
// backward alike. Scales per tensor: amax to 15, where the format still has three fraction bits,
// and to 224 for gradients, whose tails are heavier.
#include "passes/precision/list.h"

namespace octet {

const Recipe kHif8Recipe = {
    .name = "hif8",
    .help = "bf16 with HiFloat8 operands, forward and backward, in the layers' linears",
    .linears = tensor_linears(Dtype::hif8, Dtype::hif8),
    .apply = apply_quantized_linears};

}  // namespace octet
