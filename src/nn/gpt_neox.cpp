// GPT-NeoX and Pythia: decoder with LayerNorm, biases, GELU, and rotary positions of a part of each
// head; attention and MLP read the same stream, or one the other's.
// Source: Black et al. 2022. Names: GPTNeoXForCausalLM, whose query_key_value holds the three of
// each head side by side.
#include "nn/blocks.h"
#include "nn/hf_keys.h"
#include "nn/list.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "norm_eps", .key = "layer_norm_eps", .absent = 1e-5},
    {.field = "gelu", .key = "hidden_act", .absent = static_cast<int>(GeluKind::erf)},
    {.field = "attention_bias", .key = "attention_bias", .absent = 1},
    {.field = "parallel_residual", .key = "use_parallel_residual", .absent = 1},
    {.field = "rope_theta", .key = "rotary_emb_base", .newer = "rope/rope_theta", .absent = 10000},
    {.field = "rope_share",
     .key = "rotary_pct",
     .newer = "rope/partial_rotary_factor",
     .absent = 0.25},
};

// Files of transformers 4 have these beside rotary_emb_base and rotary_pct, which count.
std::vector<HfFollower> followers(const ModelSpec& spec) {
  return {follower_name("rope_theta", spec.rope_theta),
          follower_name("partial_rotary_factor", spec.rope_share)};
}

ValueId self_attention(Blocks& b, ValueId x) {
  const int64_t heads = b.spec().heads, width = b.spec().head_dim;
  const WithBias bias = bias_if(b.spec().attention_bias);
  const ValueId qkv = b.split_rows(
      b.linear(x, "attention.query_key_value", 3 * heads * width, {.bias = bias}), heads);
  const auto part = [&](int64_t i) { return b.join_rows(b.columns(qkv, i * width, width), heads); };
  const ValueId q = part(0), k = part(1), v = part(2);
  const ValueId o = b.attention(b.rope(q, heads), b.rope(k, heads), v);
  return b.linear(o, "attention.dense", b.spec().hidden,
                  {.use = MatrixUse::residual, .bias = bias});
}

ValueId mlp(Blocks& b, ValueId x) {
  const ValueId wide = b.linear(x, "mlp.dense_h_to_4h", b.spec().ffn, {.bias = WithBias::yes});
  return b.linear(b.gelu(wide, "mlp.act"), "mlp.dense_4h_to_h", b.spec().hidden,
                  {.use = MatrixUse::residual, .bias = WithBias::yes});
}

ValueId logits(Blocks& b) {
  b.enter(-1, "gpt_neox.");
  ValueId x = b.token_embedding("embed_in");
  for (int layer = 0; layer < b.spec().layers; ++layer) {
    b.enter(layer, fmt::format("gpt_neox.layers.{}.", layer));
    const ValueId after = b.add(x, self_attention(b, b.layer_norm(x, "input_layernorm")));
    const ValueId read = b.spec().parallel_residual ? x : after;
    x = b.add(after, mlp(b, b.layer_norm(read, "post_attention_layernorm")));
  }
  b.enter(-1, "gpt_neox.");
  return b.head(b.layer_norm(x, "final_layer_norm"), "gpt_neox.embed_in.weight");
}

constexpr std::string_view kHead = "embed_out.", kHeadOfClass = "lm_head.";

std::string renamed(const ModelSpec&, std::string_view stored) {
  if (!stored.starts_with(kHeadOfClass)) return std::string(stored);
  return std::string(kHead).append(stored.substr(kHeadOfClass.size()));
}

// transformers 5 calls the head as other models do; files keep its name.
std::string module_name(std::string_view module) {
  const bool is_head = module == kHead.substr(0, kHead.size() - 1);
  if (is_head) return std::string(kHeadOfClass.substr(0, kHeadOfClass.size() - 1));
  if (!module.starts_with(kHead)) return std::string(module);
  return std::string(kHeadOfClass).append(module.substr(kHead.size()));
}

}  // namespace

const ModelDef kGptNeox = {.kind = ModelKind::gpt_neox,
                           .name = "gpt_neox",
                           .architecture = "GPTNeoXForCausalLM",
                           .prefix = "gpt_neox.",
                           .head = "embed_out.weight",
                           .mlp = MlpKind::gelu,
                           .grouped_heads = false,
                           .hf_keys = kRotaryKeys,
                           .own_hf_keys = kKeys,
                           .hf_neutrals = {},
                           .hf_followers = followers,
                           .logits = logits,
                           .renamed = renamed,
                           .module_name = module_name};

}  // namespace octet
