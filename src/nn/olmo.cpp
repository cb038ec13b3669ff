// OLMo-1: Llama's decoder with LayerNorms that have neither weight nor bias,
// and queries, keys and values within a bound.
// Source: Groeneveld et al. 2024. Names: OlmoForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kAttentionBias, {.field = "clip_qkv", .key = "clip_qkv", .absent = 0, .zero_is_null = true}};

ValueId logits(Blocks& blocks) {
  return rotary_decoder(blocks, {.norm = &Blocks::layer_norm_without_weights});
}

}  // namespace

const ModelDef kOlmo = {.kind = ModelKind::olmo,
                        .name = "olmo",
                        .architecture = "OlmoForCausalLM",
                        .prefix = "model.",
                        .hf_keys = kRotaryKeys,
                        .own_hf_keys = kKeys,
                        .hf_neutrals = kGatedNeutrals,
                        .logits = logits};

}  // namespace octet
