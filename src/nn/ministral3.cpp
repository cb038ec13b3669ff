// Ministral 3: Mistral's decoder whose queries grow with the logarithm of their position.
// Source: Mistral AI 2025; Meta 2025 (Llama 4, the growth). Names: Ministral3ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
    kHiddenAct,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 8, .zero_is_null = true},
    {.field = "head_dim", .key = "head_dim", .absent = 128},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 262144},
    {.field = "sliding_window", .key = "sliding_window", .absent = 0, .zero_is_null = true},
    {.field = "rope_scaling.type", .key = "rope/rope_type", .older = "rope/type"},
    {.field = "rope_scaling.llama_4_scaling_beta",
     .key = "rope/llama_4_scaling_beta",
     .absent = 0}};

}  // namespace

constinit const ModelDef kMinistral3 =
    rotary_model(ModelKind::ministral3, "ministral3", "Ministral3ForCausalLM", kKeys);

}  // namespace octet
