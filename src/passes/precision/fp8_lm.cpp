// fp8_lm: eight bits for the optimizer and between ranks too (Peng et al. 2023, FP8-LM): fp8_linear
// with an E4M3 first moment, a second moment and master weights in FP16 with a scale a tensor, and
// gradients that ranks exchange in E4M3. Theirs rounds FP16 to nearest and sums in E4M3; here FP16
// is rounded stochastically and sums are f32.
#include "passes/precision/list.h"

namespace octet {

const Recipe kFp8LmRecipe = {
    .name = "fp8_lm",
    .help = "fp8_linear with E4M3 and FP16 states, FP16 masters and E4M3 gradients between ranks",
    .linears = tensor_linears(Dtype::e4m3, Dtype::e5m2),
    .state = "e4m3",
    .state_v = "fp16_sr",
    .master = "fp16_scaled",
    .reduce = ReduceFormat::e4m3,
    .apply = apply_quantized_linears};

}  // namespace octet
