// Nemotron 4 and Minitron: LayerNorms of 1 + weight, rotary positions of half of each head, and a
// feed-forward block of two linears and ReLU's square.
// Source: Parmar et al. 2024. Names: NemotronForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "norm_eps", .absent = 1e-5},
    {.field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::relu2)},
    kAttentionBias,
    kMlpBias,
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 4096},
    {.field = "rope_share",
     .key = "partial_rotary_factor",
     .newer = "rope/partial_rotary_factor",
     .absent = 0.5}};

}  // namespace

constinit const ModelDef kNemotron =
    rotary_model<RotaryDecoder{.norm = &Blocks::layer_norm_from_one, .mlp = MlpShape::plain}>(
        ModelKind::nemotron, "nemotron", "NemotronForCausalLM", kKeys);

}  // namespace octet
