// Qwen 2 and 2.5: Llama's decoder with biases of queries, keys and values, and a sliding window in
// the layers from one on.
// Source: Yang et al. 2024. Names: Qwen2ForCausalLM.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 32, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 32768},
    {.field = "sliding_window",
     .key = "sliding_window",
     .absent = 4096,
     .zero_is_null = true,
     .gate = "use_sliding_window"},
    {.field = "window_from", .key = "max_window_layers", .absent = 28}};

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
