// GLM 4 of 2024 (`glm`): Llama's decoder with gate and up in one linear, and rotary positions of
// neighbours in the first half of each head. Source: GLM Team 2024. Names: GlmForCausalLM. GLM 4 of
// 2025 (`glm4`): the same with norms on both sides of attention and feed-forward block. Names:
// Glm4ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kHiddenAct,
    {.field = "head_dim", .key = "head_dim", .absent = 128},
    {.field = "attention_bias", .key = "attention_bias", .absent = 1},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 2},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 131072},
    {.field = "rope_share",
     .key = "partial_rotary_factor",
     .newer = "rope/partial_rotary_factor",
     .absent = 0.5},
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1.5625e-7}};

}  // namespace

constinit const ModelDef kGlm = rotary_model<RotaryDecoder{
    .out_bias = OutBias::none, .pairs = RotaryPairs::neighbours, .fused = Fused::gate_up}>(
    ModelKind::glm, "glm", "GlmForCausalLM", kKeys);

constinit const ModelDef kGlm4 = rotary_model<RotaryDecoder{.place = NormPlace::around_glm,
                                                            .out_bias = OutBias::none,
                                                            .pairs = RotaryPairs::neighbours,
                                                            .fused = Fused::gate_up}>(
    ModelKind::glm4, "glm4", "Glm4ForCausalLM", kKeys);

}  // namespace octet
