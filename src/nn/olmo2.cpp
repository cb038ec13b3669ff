// OLMo 2: Llama's decoder with RMSNorms on what attention and MLP add, and on queries and keys.
// Source: OLMo et al. 2024. Names: Olmo2ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5}, kHiddenAct, kAttentionBias};

}  // namespace

constinit const ModelDef kOlmo2 =
    rotary_model<RotaryDecoder{.place = NormPlace::after, .qk_norm = QkNorm::projection}>(
        ModelKind::olmo2, "olmo2", "Olmo2ForCausalLM", kKeys);

}  // namespace octet
