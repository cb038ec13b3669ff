// bf16: BF16 weights, activations and gradients; statistics, softmax and loss in f32.
#include "passes/precision/list.h"

namespace octet {

const Recipe kBf16Recipe = {
    .name = "bf16",
    .help = "BF16 weights, activations and gradients; statistics, softmax and loss in f32",
    .apply = apply_types};

}  // namespace octet
