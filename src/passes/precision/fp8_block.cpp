// Scales by block in the layers' linears; E4M3 operands.
// fp8_block: inputs and gradients in groups of 1 x 128, weights in blocks of 128 x 128, scales
// amax / 448 in f32 (DeepSeek-V3 2024), or BF16 powers of two (recipe.block_scale). What the GEMMs
// read of a weight is what `octet convert` writes of it.
// fp8_row: in the forward GEMM a scale for each row of x and of w, so for each token and each
// output; the backward pass as fp8_linear. A row's scale cannot be taken out of a sum over rows.
// mxfp8: all operands in groups of 32 with E8M0 scales (OCP MX 1.0); weights and inputs are
// quantized anew for the GEMM that reduces their other axis.
#include "passes/precision/list.h"

namespace octet {

const Recipe kFp8BlockRecipe = {
    .name = "fp8_block",
    .help = "bf16 with E4M3 operands in groups of 128, weights in blocks, in the layers' linears",
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, "1x128"),
                .w = block_format(Dtype::e4m3, "128x128"),
                .dy = block_format(Dtype::e4m3, "1x128")},
    .weight_copy = WeightCopy::per_use,
    .apply = apply_quantized_linears};

const Recipe kFp8RowRecipe = {
    .name = "fp8_row",
    .help = "fp8_linear with a scale for each row of inputs and weights in the forward GEMMs",
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, "row"),
                .w = block_format(Dtype::e4m3, "row"),
                .dy = operand_format(Dtype::e5m2, true),
                .backward_x = operand_format(Dtype::e4m3, false),
                .backward_w = operand_format(Dtype::e4m3, false)},
    .apply = apply_quantized_linears};

const Recipe kMxfp8Recipe = {
    .name = "mxfp8",
    .help = "bf16 with E4M3 operands in groups of 32 and E8M0 scales, in the layers' linears",
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, "1x32", Dtype::e8m0),
                .w = block_format(Dtype::e4m3, "1x32", Dtype::e8m0),
                .dy = block_format(Dtype::e4m3, "1x32", Dtype::e8m0)},
    .weight_copy = WeightCopy::per_use,
    .apply = apply_quantized_linears};

}  // namespace octet
