// OPT: decoder with LayerNorms, biases and ReLU, learned positions that begin in row 2 of their
// table, and embeddings that may be narrower than the layers.
// Source: Zhang et al. 2022. Names: OPTForCausalLM.
#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "embedding_size", .key = "word_embed_proj_dim", .absent = 0, .zero_is_null = true},
    {.field = "ffn", .key = "ffn_dim"},
    {.field = "layers", .key = "num_hidden_layers"},
    {.field = "heads", .key = "num_attention_heads"},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 2048},
    {.field = "norm_before", .key = "do_layer_norm_before", .absent = 1},
    {.field = "attention_bias", .key = "enable_bias", .absent = 1},
    {.field = "mlp_act", .key = "activation_function", .absent = static_cast<int>(MlpAct::relu)},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1}};
constexpr HfNeutral kNeutrals[] = {{.key = "layer_norm_elementwise_affine", .value = "true"},
                                   {.key = "_remove_final_layer_norm", .value = "false"},
                                   {.key = "layerdrop", .value = "0.0"}};

ValueId self_attention(Blocks& b, ValueId x) {
  const WithBias bias = bias_if(b.spec().attention_bias);
  const int64_t width = b.spec().heads * b.spec().head_dim;
  const ValueId q = b.linear(x, "self_attn.q_proj", width, {.bias = bias});
  const ValueId k = b.linear(x, "self_attn.k_proj", width, {.bias = bias});
  const ValueId v = b.linear(x, "self_attn.v_proj", width, {.bias = bias});
  return b.linear(b.attention(q, k, v), "self_attn.out_proj", b.spec().hidden,
                  {.use = MatrixUse::residual, .bias = bias});
}

ValueId mlp(Blocks& b, ValueId x) {
  const WithBias bias = bias_if(b.spec().attention_bias);
  const ValueId wide = b.activation(b.linear(x, "fc1", b.spec().ffn, {.bias = bias}), "act");
  return b.linear(wide, "fc2", b.spec().hidden, {.use = MatrixUse::residual, .bias = bias});
}

// x + block(norm(x)), or norm(x + block(x)).
template <ValueId (*kBlock)(Blocks&, ValueId)>
ValueId added(Blocks& b, ValueId x, std::string_view norm) {
  if (b.spec().norm_before) return b.add(x, kBlock(b, b.layer_norm(x, norm)));
  return b.layer_norm(b.add(x, kBlock(b, x)), norm);
}

ValueId logits(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const bool is_narrow = spec.embedding_size != spec.hidden;
  b.enter(-1, "model.decoder.");
  ValueId x = b.embedding_of("embed_tokens", b.input("tokens"),
                             {.n = spec.vocab, .width = spec.embedding_size});
  if (is_narrow) x = b.linear(x, "project_in", spec.hidden);
  x = b.add(x, b.position_embedding("embed_positions"), "embed_positions");
  for (int layer = 0; layer < spec.layers; ++layer) {
    b.enter(layer, fmt::format("model.decoder.layers.{}.", layer));
    x = added<self_attention>(b, x, "self_attn_layer_norm");
    x = added<mlp>(b, x, "final_layer_norm");
  }
  b.enter(-1, "model.decoder.");
  if (spec.norm_before) x = b.layer_norm(x, "final_layer_norm");
  if (is_narrow) x = b.linear(x, "project_out", spec.embedding_size);
  return b.head(x, "model.decoder.embed_tokens.weight");
}

}  // namespace

constinit const ModelDef kOpt = {.kind = ModelKind::opt,
                                 .name = "opt",
                                 .architecture = "OPTForCausalLM",
                                 .prefix = "model.",
                                 .positions = Positions::learned,
                                 .mlp = MlpKind::gelu,
                                 .grouped_heads = false,
                                 .hf_keys = kKeys,
                                 .own_hf_keys = {},
                                 .hf_neutrals = kNeutrals,
                                 .logits = logits,
                                 .rows_before_positions = 2};

}  // namespace octet
