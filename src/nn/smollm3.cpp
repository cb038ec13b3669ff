// SmolLM 3: Llama's decoder, each fourth layer of which has no rotary positions.
// Source: Bakouch et al. 2025; Yang et al. 2025 (layers without positions). Names:
// SmolLM3ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    kAttentionBias,
    kMlpBias,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 4, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 32768},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "rope_theta", .key = "rope_theta", .newer = "rope/rope_theta", .absent = 2e6},
    {.field = "no_rope_every", .key = "no_rope_layer_interval", .absent = 4}};

}  // namespace

constinit const ModelDef kSmolLm3 =
    rotary_model(ModelKind::smollm3, "smollm3", "SmolLM3ForCausalLM", kKeys);

}  // namespace octet
