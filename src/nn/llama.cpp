// Llama: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
// Source: Touvron et al. 2023 (Llama 2); rotary scaling "llama3" as in the Llama 3.1 release.
// Names: LlamaForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {kRmsEps, kAttentionBias, kMlpBias};

ValueId logits(Blocks& blocks) {
  return rotary_decoder(blocks);
}

}  // namespace

const ModelDef kLlama = {.kind = ModelKind::llama,
                         .name = "llama",
                         .architecture = "LlamaForCausalLM",
                         .prefix = "model.",
                         .hf_keys = kRotaryKeys,
                         .own_hf_keys = kKeys,
                         .hf_neutrals = kGatedNeutrals,
                         .logits = logits};

}  // namespace octet
