// coat: fp8_linear whose saved activations are eight bits too (Xi et al., ICLR 2025). The inputs of
// norms and activations, which the forward pass reads unquantized, are kept as E4M3 groups of 16
// with BF16 scales; norm outputs and the gated product are computed again in the backward pass from
// those; optimizer states are E4M3 with dynamic range expansion.
// coat-block: for fine-tuning public weights. The same, but the forward GEMMs read inputs in groups
// of 1 x 128 and weights in blocks of 128 x 128, with f32 scales: what fine-tuning loses is the
// forward operands' rounding (docs/finetuning.md). The backward pass is coat's.
// coat-fast: the same with 8-bit weights kept from one update to the next, scales of inputs and
// gradients from the steps before, and fast accumulation in the GEMMs of input gradients too.
#include "passes/precision/list.h"

namespace octet {
const Recipe kCoatRecipe = {
    .name = "coat",
    .help = "fp8_linear with activations stored in E4M3 groups and E4M3 optimizer states",
    .linears = tensor_linears(Dtype::e4m3, Dtype::e5m2),
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .activations = Dtype::e4m3,
    .apply = apply_quantized_linears};

const Recipe kCoatBlockRecipe = {
    .name = "coat-block",
    .help = "coat with forward operands in E4M3 groups and blocks of 128, for fine-tuning",
    .linears = {.quantized = true,
                .x = block_format(Dtype::e4m3, "1x128"),
                .w = block_format(Dtype::e4m3, "128x128"),
                .dy = operand_format(Dtype::e5m2, true),
                .backward_x = operand_format(Dtype::e4m3, false),
                .backward_w = operand_format(Dtype::e4m3, false)},
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .activations = Dtype::e4m3,
    .apply = apply_quantized_linears};

const Recipe kCoatFastRecipe = {
    .name = "coat-fast",
    .help = "coat with kept 8-bit weights, delayed scales and fast accumulation",
    .linears = kCoatRecipe.linears,
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .scaling = Scaling::delayed,
    .weight_copy = WeightCopy::per_step,
    .fast_accumulate = FastAccumulate::all,
    .activations = Dtype::e4m3,
    .apply = apply_quantized_linears};

}  // namespace octet
