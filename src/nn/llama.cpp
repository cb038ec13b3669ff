// Llama: pre-norm decoder with RMSNorm, rotary positions, grouped-query attention and SwiGLU.
// Source: Touvron et al. 2023 (Llama 2); rotary scaling "llama3" as in the Llama 3.1 release.
// Names: LlamaForCausalLM.
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
    x = b.add(x, b.rotary_attention(b.rms_norm(x, "input_layernorm")));
    x = b.add(x, b.gated_mlp(b.rms_norm(x, "post_attention_layernorm")));
  }
  b.enter(-1, "model.");
  return b.head(b.rms_norm(x, "norm"), "model.embed_tokens.weight");
}

}  // namespace

const ModelDef kLlama = {.kind = ModelKind::llama,
                         .name = "llama",
                         .architecture = "LlamaForCausalLM",
                         .prefix = "model.",
                         .check = check_rotary,
                         .logits = logits};

}  // namespace octet
