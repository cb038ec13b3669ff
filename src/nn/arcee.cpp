// Arcee's AFM: Llama's decoder with a feed-forward block of two linears and ReLU's square.
// Source: Arcee AI 2025; So et al. 2021 (ReLU's square). Names: ArceeForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
    {.field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::relu2)},
    kAttentionBias,
    kMlpBias,
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 4096}};

}  // namespace

constinit const ModelDef kArcee = rotary_model<RotaryDecoder{.mlp = MlpShape::plain}>(
    ModelKind::arcee, "arcee", "ArceeForCausalLM", kKeys);

}  // namespace octet
