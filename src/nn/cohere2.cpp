// Cohere's Command R7B and A: attention and feed-forward block side by side behind one LayerNorm, a
// sliding window and rotary positions of neighbours in three of four layers, and none in the
// fourth. Source: Cohere 2025. Names: Cohere2ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-5},
    kHiddenAct,
    kAttentionBias,
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 8192},
    {.field = "sliding_window", .key = "sliding_window", .absent = 4096},
    kLayerTypes,
    {.field = "logit_scale", .key = "logit_scale", .absent = 0.0625}};

// Keys of the same architecture in words that no program reads.
constexpr HfNeutral kNeutrals[] = {
    {.key = "rotary_pct", .value = "1.0"},
    {.key = "position_embedding_type", .value = "\"rope_gptj\""},
    {.key = "order_of_interleaved_layers", .value = "\"local_attn_first\""},
    {.key = "layer_switch", .value = "4"},
    {.key = "use_parallel_block", .value = "true"},
    {.key = "use_gated_activation", .value = "true"},
    {.key = "use_embedding_sharing", .value = "true"},
    {.key = "use_parallel_embedding", .value = "true", .also = "false"}};

constexpr ModelDef definition() {
  ModelDef def = rotary_model<RotaryDecoder{.norm = &Blocks::layer_norm_without_bias,
                                            .place = NormPlace::shared,
                                            .pairs = RotaryPairs::neighbours}>(
      ModelKind::cohere2, "cohere2", "Cohere2ForCausalLM", kKeys, kNeutrals);
  def.full_every = 4;
  def.reads_window_pattern = true;
  def.rotated = RotatedLayers::windows;
  return def;
}

}  // namespace

constinit const ModelDef kCohere2 = definition();

}  // namespace octet
