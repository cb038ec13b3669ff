// Qwen 3: Llama's decoder with RMSNorms of each head's queries and keys.
// Source: Yang et al. 2025. Names: Qwen3ForCausalLM.
#include "nn/qwen_keys.h"
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,         kHiddenAct,     kAttentionBias,
    kQwenKvHeads,    kQwenPositions, kQwenWindow,
    kQwenWindowFrom, kLayerTypes,    {.field = "head_dim", .key = "head_dim", .absent = 128}};

}  // namespace

constinit const ModelDef kQwen3 = rotary_model<RotaryDecoder{.qk_norm = QkNorm::head}>(
    ModelKind::qwen3, "qwen3", "Qwen3ForCausalLM", kKeys);

}  // namespace octet
