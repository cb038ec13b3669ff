// Qwen 2 and 2.5: Llama's decoder with biases of queries, keys and values, and a sliding window in
// the layers from one on.
// Source: Yang et al. 2024. Names: Qwen2ForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {kRmsEps, kQwenKvHeads, kQwenPositions, kQwenWindow, kQwenWindowFrom};

ValueId logits(Blocks& blocks) {
  return rotary_decoder(blocks, {.qkv_bias = WithBias::yes});
}

}  // namespace

const ModelDef kQwen2 = {.kind = ModelKind::qwen2,
                         .name = "qwen2",
                         .architecture = "Qwen2ForCausalLM",
                         .prefix = "model.",
                         .hf_keys = kRotaryKeys,
                         .own_hf_keys = kKeys,
                         .hf_neutrals = kGatedNeutrals,
                         .logits = logits};

}  // namespace octet
