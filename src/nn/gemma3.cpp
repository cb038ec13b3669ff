// Gemma 3, of text: Gemma 2 with norms of each head's queries and keys in the place of capped
// scores, and angles of their own in layers with a sliding window, five of six. Source: Gemma Team
// 2025. Names: Gemma3ForCausalLM.
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
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 131072},
    kGemmaWindow,
    kLayerTypes,
    {.field = "rope_theta", .key = "rope_theta", .newer = "rope/rope_theta", .absent = 1e6},
    {.field = "window_rope_theta",
     .key = "rope_local_base_freq",
     .newer = "rope/sliding_attention/rope_theta",
     .absent = 10000},
    {.field = "query_pre_attn_scalar", .key = "query_pre_attn_scalar", .absent = 256},
    {.field = "logit_softcap",
     .key = "final_logit_softcapping",
     .absent = 0,
     .zero_is_null = true}};
constexpr HfNeutral kNeutrals[] = {
    {.key = "rope/sliding_attention/rope_type", .value = "\"default\""},
    {.key = "rope/sliding_attention/type", .value = "\"default\""},
};

constexpr ModelDef definition() {
  ModelDef def = rotary_model<RotaryDecoder{.norm = &Blocks::rms_norm_from_one,
                                            .place = NormPlace::around,
                                            .qk_norm = QkNorm::head,
                                            .embedding = EmbeddingFactor::sqrt_hidden}>(
      ModelKind::gemma3, "gemma3_text", "Gemma3ForCausalLM", kKeys);
  def.full_every = 6;
  def.reads_window_pattern = true;
  def.hf_neutrals = kNeutrals;
  return def;
}

}  // namespace

constinit const ModelDef kGemma3 = definition();

}  // namespace octet
