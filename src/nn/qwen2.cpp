// Qwen 2 and 2.5: Llama's decoder with biases of queries, keys and values, and a sliding window in
// the layers from one on.
// Source: Yang et al. 2024. Names: Qwen2ForCausalLM.
#include "nn/qwen_keys.h"
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {kRmsEps,     kHiddenAct,      kQwenKvHeads, kQwenPositions,
                           kQwenWindow, kQwenWindowFrom, kLayerTypes};

}  // namespace

constinit const ModelDef kQwen2 = rotary_model<RotaryDecoder{.qkv_bias = WithBias::yes}>(
    ModelKind::qwen2, "qwen2", "Qwen2ForCausalLM", kKeys);

}  // namespace octet
