// Scales by block, powers of two, in the layers' linears; E4M3 throughout.
// fp8_block: inputs and gradients in groups of 1 x 128, weights in blocks of 128 x 128 (DeepSeek-V3
// 2024), scales BF16. What the GEMMs read of a weight is what `octet convert` writes of it.
// mxfp8: all operands in groups of 32 with E8M0 scales (OCP MX 1.0); weights and inputs are
// quantized anew for the GEMM that reduces their other axis.
#include "passes/precision/list.h"

namespace octet {

const Recipe kFp8BlockRecipe = {
    .name = "fp8_block",
    .help = "bf16 with E4M3 operands in groups of 128, weights in blocks, in the layers' linears",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, 1, 128),
                .w = block_format(Dtype::e4m3, 128, 128),
                .dy = block_format(Dtype::e4m3, 1, 128)},
    .recompute = Recompute::none,
    .state = "f32",
    .weight_copy = WeightCopy::per_use,
    .apply = apply_quantized_linears};

const Recipe kMxfp8Recipe = {
    .name = "mxfp8",
    .help = "bf16 with E4M3 operands in groups of 32 and E8M0 scales, in the layers' linears",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, 1, 32, Dtype::e8m0),
                .w = block_format(Dtype::e4m3, 1, 32, Dtype::e8m0),
                .dy = block_format(Dtype::e4m3, 1, 32, Dtype::e8m0)},
    .recompute = Recompute::none,
    .state = "f32",
    .weight_copy = WeightCopy::per_use,
    .apply = apply_quantized_linears};

}  // namespace octet
