// Gemma 2: Gemma with norms on both sides of attention and feed-forward block, a sliding window in
// every other layer, and capped scores and logits.
// Source: Gemma Team 2024 (Gemma 2). Names: Gemma2ForCausalLM.
#include "nn/gemma_keys.h"
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kAttentionBias,
    kGemmaAct,
    kGemmaTied,
    kGemmaHeadDim,
    kGemmaKvHeads,
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 8192},
    kGemmaWindow,
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
