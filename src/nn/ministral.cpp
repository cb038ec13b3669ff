// Ministral: Mistral's decoder with a sliding window in some layers.
// Source: Mistral AI 2024. Names: MinistralForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 8, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 131072},
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true},
    kLayerTypes};

}  // namespace

constinit const ModelDef kMinistral =
    rotary_model(ModelKind::ministral, "ministral", "MinistralForCausalLM", kKeys);

}  // namespace octet
