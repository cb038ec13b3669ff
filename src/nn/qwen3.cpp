// Qwen 3: Llama's decoder with RMSNorms of each head's queries and keys.
// Source: Yang et al. 2025. Names: Qwen3ForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {kRmsEps,        kAttentionBias,
                           kQwenKvHeads,   {.field = "head_dim", .key = "head_dim", .absent = 128},
                           kQwenPositions, kQwenWindow,
                           kQwenWindowFrom};

ValueId logits(Blocks& blocks) {
  return rotary_decoder(blocks, {.qk_norm = QkNorm::head});
}

}  // namespace

const ModelDef kQwen3 = {.kind = ModelKind::qwen3,
                         .name = "qwen3",
                         .architecture = "Qwen3ForCausalLM",
                         .prefix = "model.",
                         .hf_keys = kRotaryKeys,
                         .own_hf_keys = kKeys,
                         .hf_neutrals = kGatedNeutrals,
                         .logits = logits};

}  // namespace octet
