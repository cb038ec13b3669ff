// OLMo 2: Llama's decoder with RMSNorms on what attention and MLP add, and on queries and keys.
// Source: OLMo et al. 2024. Names: Olmo2ForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {{.field = "norm_eps", .key = "rms_norm_eps", .absent = 1e-5},
                           kAttentionBias};

ValueId logits(Blocks& blocks) {
  return rotary_decoder(blocks, {.place = NormPlace::after, .qk_norm = QkNorm::projection});
}

}  // namespace

const ModelDef kOlmo2 = {.kind = ModelKind::olmo2,
                         .name = "olmo2",
                         .architecture = "Olmo2ForCausalLM",
                         .prefix = "model.",
                         .hf_keys = kRotaryKeys,
                         .own_hf_keys = kKeys,
                         .hf_neutrals = kGatedNeutrals,
                         .logits = logits};

}  // namespace octet
