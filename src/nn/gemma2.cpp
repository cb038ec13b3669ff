// Gemma 2: Gemma with norms on both sides of attention and feed-forward block, a sliding window in
// every other layer, and capped scores and logits.
// Source: Gemma Team 2024 (Gemma 2). Names: Gemma2ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kAttentionBias,
    {.field = "mlp_act", .key = "hidden_activation", .absent = static_cast<int>(MlpAct::gelu_tanh)},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "head_dim", .key = "head_dim", .absent = 256},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 4},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 8192},
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true},
    kLayerTypes,
    {.field = "query_pre_attn_scalar", .key = "query_pre_attn_scalar", .absent = 256},
    {.field = "attention_softcap",
     .key = "attn_logit_softcapping",
     .absent = 50,
     .zero_is_null = true},
    {.field = "logit_softcap",
     .key = "final_logit_softcapping",
     .absent = 30,
     .zero_is_null = true}};

constexpr ModelDef definition() {
  ModelDef def = rotary_model<RotaryDecoder{.norm = &Blocks::rms_norm_from_one,
                                            .place = NormPlace::around,
                                            .embedding = EmbeddingFactor::sqrt_hidden}>(
      ModelKind::gemma2, "gemma2", "Gemma2ForCausalLM", kKeys);
  def.full_every = 2;
  return def;
}

}  // namespace

constinit const ModelDef kGemma2 = definition();

}  // namespace octet
