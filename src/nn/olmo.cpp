// OLMo-1: Llama's decoder with LayerNorms that have neither weight nor bias,
// and queries, keys and values within a bound.
// Source: Groeneveld et al. 2024. Names: OlmoForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kHiddenAct,
    kAttentionBias,
    {.field = "clip_qkv", .key = "clip_qkv", .absent = 0, .zero_is_null = true}};

}  // namespace

constinit const ModelDef kOlmo =
    rotary_model<RotaryDecoder{.norm = &Blocks::layer_norm_without_weights}>(
        ModelKind::olmo, "olmo", "OlmoForCausalLM", kKeys);

}  // namespace octet
