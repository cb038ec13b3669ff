// OLMo-1: Llama's decoder with LayerNorms that have neither weight nor bias.
// Source: Groeneveld et al. 2024. Names: OlmoForCausalLM.
#include <fmt/format.h>

#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

ValueId logits(Blocks& b) {
  b.enter(-1, "model.");
  ValueId x = b.token_embedding("embed_tokens");
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    x = b.add(x, b.rotary_attention(b.layer_norm_without_weights(x, "input_layernorm")));
    x = b.add(x, b.gated_mlp(b.layer_norm_without_weights(x, "post_attention_layernorm")));
  }
  b.enter(-1, "model.");
  return b.head(b.layer_norm_without_weights(x, "norm"), "model.embed_tokens.weight");
}

}  // namespace

const ModelDef kOlmo = {.kind = ModelKind::olmo,
                        .name = "olmo",
                        .architecture = "OlmoForCausalLM",
                        .prefix = "model.",
                        .check = check_rotary,
                        .logits = logits};

}  // namespace octet
