// GPT-2: pre-norm decoder with LayerNorm, biases, GELU and learned positions.
// Source: Radford et al. 2019. Names and layouts: GPT2LMHeadModel, whose linears store [in, out].
#include "nn/blocks.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "n_embd"},
    {.field = "ffn", .key = "n_inner", .absent = 0},
    {.field = "layers", .key = "n_layer"},
    {.field = "heads", .key = "n_head"},
    {.field = "max_positions", .key = "n_positions", .older = "n_ctx", .absent = 1024},
    {.field = "norm_eps", .key = "layer_norm_epsilon", .absent = 1e-5},
    {.field = "gelu", .key = "activation_function", .absent = static_cast<int>(GeluKind::tanh)},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
};
constexpr HfNeutral kNeutrals[] = {
    {.key = "scale_attn_weights", .value = "true"},
    {.key = "scale_attn_by_inverse_layer_idx", .value = "false"},
};

std::vector<HfFollower> followers(const ModelSpec& spec) {
  return {follower_name("hidden_size", spec.hidden),
          follower_name("num_attention_heads", spec.heads),
          follower_name("num_hidden_layers", spec.layers),
          follower_name("max_position_embeddings", spec.max_positions)};
}

constexpr LinearOptions kMatrix = {.layout = WeightLayout::in_out, .bias = WithBias::yes};
constexpr LinearOptions kResidual = {
    .use = MatrixUse::residual, .layout = WeightLayout::in_out, .bias = WithBias::yes};

ValueId self_attention(Blocks& b, ValueId x) {
  const int64_t width = b.spec().heads * b.spec().head_dim;
  const ValueId qkv = b.linear(x, "attn.c_attn", 3 * width, kMatrix);
  const ValueId q = b.columns(qkv, 0, width);
  const ValueId k = b.columns(qkv, width, width);
  const ValueId v = b.columns(qkv, 2 * width, width);
  return b.linear(b.attention(q, k, v), "attn.c_proj", b.spec().hidden, kResidual);
}

ValueId mlp(Blocks& b, ValueId x) {
  const ValueId wide = b.gelu(b.linear(x, "mlp.c_fc", b.spec().ffn, kMatrix), "mlp.act");
  return b.linear(wide, "mlp.c_proj", b.spec().hidden, kResidual);
}

ValueId logits(Blocks& b) {
  b.enter(-1, "transformer.");
  ValueId x = b.token_embedding("wte");
  x = b.add(x, b.position_embedding("wpe"), "wpe");
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("transformer.h.{}.", layer));
    x = b.add(x, self_attention(b, b.layer_norm(x, "ln_1")));
    x = b.add(x, mlp(b, b.layer_norm(x, "ln_2")));
  }
  b.enter(-1, "transformer.");
  return b.head(b.layer_norm(x, "ln_f"), "transformer.wte.weight");
}

}  // namespace

const ModelDef kGpt2 = {.kind = ModelKind::gpt2,
                        .name = "gpt2",
                        .architecture = "GPT2LMHeadModel",
                        .prefix = "transformer.",
                        .positions = Positions::learned,
                        .mlp = MlpKind::gelu,
                        .grouped_heads = false,
                        .plain_linears = false,
                        .hf_keys = kKeys,
                        .own_hf_keys = {},
                        .hf_neutrals = kNeutrals,
                        .hf_followers = followers,
                        .logits = logits};

}  // namespace octet
