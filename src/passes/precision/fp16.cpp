// fp16: FP16 storage, f32 arithmetic. Small gradients vanish without loss scaling.
#include "passes/precision/list.h"

namespace octet {

const Recipe kFp16Recipe = {.name = "fp16",
                            .help = "FP16 storage, f32 arithmetic",
                            .compute = Dtype::fp16,
                            .apply = apply_types};

}  // namespace octet
