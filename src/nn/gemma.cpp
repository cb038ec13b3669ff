// Gemma: Llama's decoder with embeddings times sqrt(hidden), RMSNorms of 1 + weight, and GELU in
// the place of SiLU. Source: Gemma Team 2024. Names: GemmaForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

// Its own files say gelu and mean the tanh near it.
constexpr HfName kActs[] = {{"gelu_pytorch_tanh", static_cast<int>(MlpAct::gelu_tanh)},
                            {"gelu", static_cast<int>(MlpAct::gelu_tanh)},
                            {"gelu_python", static_cast<int>(MlpAct::gelu_erf)},
                            {"silu", static_cast<int>(MlpAct::silu)},
                            {"relu", static_cast<int>(MlpAct::relu)},
                            {"relu2", static_cast<int>(MlpAct::relu2)}};
constexpr HfKey kKeys[] = {
    kRmsEps,
    kAttentionBias,
    {.field = "mlp_act",
     .key = "hidden_act",
     .absent = static_cast<int>(MlpAct::gelu_tanh),
     .names = kActs},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "head_dim", .key = "head_dim", .absent = 256},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 16, .zero_is_null = true},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 8192}};
constexpr HfNeutral kNeutrals[] = {
    {.key = "hidden_activation", .value = "null", .also = "\"gelu_pytorch_tanh\""},
};

constexpr ModelDef definition() {
  ModelDef def = rotary_model<RotaryDecoder{.norm = &Blocks::rms_norm_from_one,
                                            .embedding = EmbeddingFactor::sqrt_hidden}>(
      ModelKind::gemma, "gemma", "GemmaForCausalLM", kKeys);
  def.hf_neutrals = kNeutrals;
  return def;
}

}  // namespace

constinit const ModelDef kGemma = definition();

}  // namespace octet
