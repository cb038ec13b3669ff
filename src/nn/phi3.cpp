// Phi 3 and 4: Llama's decoder with queries, keys and values in one linear, gate and up in another,
// and LongRoPE of a part of each head.
// Source: Abdin et al. 2024; Ding et al. 2024 (LongRoPE). Names: Phi3ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
    kHiddenAct,
    kRopeShare,
    {.field = "sliding_window", .key = "sliding_window", .absent = 0, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 4096},
    {.field = "rope_scaling.original_max_position",
     .key = "original_max_position_embeddings",
     .newer = "rope/original_max_position_embeddings",
     .absent = 4096}};

// Keys that Phi 4 mini's files have, and no program reads.
constexpr HfNeutral kNeutrals[] = {{.key = "lm_head_bias", .value = "false"},
                                   {.key = "full_attn_mod", .value = "1"},
                                   {.key = "interpolate_factor", .value = "1"}};

}  // namespace

constinit const ModelDef kPhi3 = rotary_model<RotaryDecoder{.fused = Fused::all}>(
    ModelKind::phi3, "phi3", "Phi3ForCausalLM", kKeys, kNeutrals);

}  // namespace octet
