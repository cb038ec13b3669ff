// StarCoder 2: rotary decoder with LayerNorms, and a feed-forward block of two linears and GELU.
// Source: Lozhkov et al. 2024. Names: Starcoder2ForCausalLM.
#include "nn/rotary_model.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "norm_epsilon", .absent = 1e-5},
    {.field = "mlp_act", .key = "hidden_act", .absent = static_cast<int>(MlpAct::gelu_tanh)},
    {.field = "attention_bias", .key = "use_bias", .absent = 1},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 2},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 4096},
    {.field = "sliding_window", .key = "sliding_window", .absent = 0, .zero_is_null = true},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1}};

constexpr HfNeutral kNeutrals[] = {{.key = "norm_type", .value = "\"layer_norm\""},
                                   {.key = "mlp_type", .value = "\"default\""},
                                   {.key = "layer_norm_epsilon", .value = "1e-05"},
                                   {.key = "scale_attn_weights", .value = "true"},
                                   {.key = "attention_softmax_in_fp32", .value = "true"},
                                   {.key = "scale_attention_softmax_in_fp32", .value = "true"}};

ValueId mlp(Blocks& b, ValueId x) {
  const WithBias bias = bias_if(b.spec().attention_bias);
  const ValueId wide = b.linear(x, "mlp.c_fc", b.spec().ffn, {.bias = bias});
  return b.linear(b.activation(wide, "mlp.act"), "mlp.c_proj", b.spec().hidden,
                  {.use = MatrixUse::residual, .bias = bias});
}

ValueId logits(Blocks& b) {
  b.enter(-1, "model.");
  ValueId x = b.token_embedding("embed_tokens");
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    x = b.add(x, b.rotary_attention(b.layer_norm(x, "input_layernorm"), {}));
    x = b.add(x, mlp(b, b.layer_norm(x, "post_attention_layernorm")));
  }
  b.enter(-1, "model.");
  return b.head(b.layer_norm(x, "norm"), "model.embed_tokens.weight");
}

constexpr ModelDef definition() {
  ModelDef def =
      rotary_model(ModelKind::starcoder2, "starcoder2", "Starcoder2ForCausalLM", kKeys, kNeutrals);
  def.mlp = MlpKind::gelu;
  def.logits = logits;
  return def;
}

}  // namespace

constinit const ModelDef kStarcoder2 = definition();

}  // namespace octet
