// Mistral: Llama's decoder with attention to a sliding window of the last keys.
// Source: Jiang et al. 2023. Names: MistralForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 8, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 131072},
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true}};

}  // namespace

constinit const ModelDef kMistral =
    rotary_model(ModelKind::mistral, "mistral", "MistralForCausalLM", kKeys);

}  // namespace octet
