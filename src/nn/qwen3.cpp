// Qwen 3: Llama's decoder with RMSNorms of each head's queries and keys.
// Source: Yang et al. 2025. Names: Qwen3ForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kAttentionBias,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 32, .zero_is_null = true},
    {.field = "head_dim", .key = "head_dim", .absent = 128},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 32768},
    {.field = "sliding_window",
     .key = "sliding_window",
     .absent = 4096,
     .zero_is_null = true,
     .gate = "use_sliding_window"},
    {.field = "window_from", .key = "max_window_layers", .absent = 28}};

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
