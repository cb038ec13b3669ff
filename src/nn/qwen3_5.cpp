// Qwen 3.5, of text and dense: layers of the gated delta rule, every fourth one of attention with a
// gate on what it gives, partly rotary positions, and RMSNorms of 1 + weight.
// Source: Qwen Team 2026. Names: Qwen3_5ForCausalLM.
#include "nn/gated_delta.h"
#include "nn/hf_keys.h"
#include "nn/list.h"
#include "nn/losses/parts.h"
#include "nn/rotary_model.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    kRmsEps,
    kHiddenAct,
    kAttentionBias,
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 4},
    {.field = "head_dim", .key = "head_dim", .absent = 256},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 32768},
    {.field = "rope_share",
     .key = "partial_rotary_factor",
     .newer = "rope/partial_rotary_factor",
     .absent = 0.25},
    {.field = "linear_layers", .key = "layer_types", .absent = 0},
    {.field = "linear_key_heads", .key = "linear_num_key_heads", .absent = 16},
    {.field = "linear_value_heads", .key = "linear_num_value_heads", .absent = 32},
    {.field = "linear_key_dim", .key = "linear_key_head_dim", .absent = 128},
    {.field = "linear_value_dim", .key = "linear_value_head_dim", .absent = 128},
    {.field = "conv_width", .key = "linear_conv_kernel_dim", .absent = 4}};
constexpr HfNeutral kNeutrals[] = {{.key = "attn_output_gate", .value = "true"},
                                   {.key = "mamba_ssm_dtype", .value = "\"float32\""}};

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (full.linear_value_heads % full.linear_key_heads != 0)
    return fault_against("linear_value_heads", "linear_key_heads", "a multiple of {}", full);
  if (std::ssize(full.linear_layers) != full.layers)
    return fault_against("linear_layers", "layers", "one for each of {}", full);
  return std::nullopt;
}

// The head of several tokens ahead, which is trained and read by nobody here.
bool skips(const ModelSpec&, std::string_view stored) {
  return stored.starts_with("mtp.");
}

ValueId linear_attention(Blocks& b, ValueId x) {
  const ModelSpec& spec = b.spec();
  Builder& builder = b.builder();
  const int64_t keys = spec.linear_key_heads * spec.linear_key_dim;
  const int64_t values = spec.linear_value_heads * spec.linear_value_dim;
  const int64_t width = 2 * keys + values, heads = spec.linear_value_heads;
  const ValueId mixed = b.in_f32(b.linear(x, "linear_attn.in_proj_qkv", width));
  const ValueId z = b.in_f32(b.linear(x, "linear_attn.in_proj_z", values));
  const ValueId beta_in = b.in_f32(b.linear(x, "linear_attn.in_proj_b", heads));
  const ValueId decay_in = b.in_f32(b.linear(x, "linear_attn.in_proj_a", heads));
  b.module("linear_attn.conv1d");
  const ValueId filter = b.in_f32(b.linear_weight(
      "linear_attn.conv1d", width, spec.conv_width,
      {.use = MatrixUse::embedding, .file_shape = {width, 1, spec.conv_width}, .std = 0.3}));
  const ValueId qkv = b.activation(causal_convolution(b, mixed, filter), "linear_attn.conv1d");
  b.module("linear_attn.delta_rule");
  const auto of_heads = [&](ValueId one) {
    return builder.broadcast(b.in_f32(one), b.shape(decay_in), {1});
  };
  const ValueId step = softplus(
      builder, builder.add(decay_in, of_heads(b.vector("linear_attn.dt_bias", heads, Init::ones))));
  const ValueId rate =
      builder.unary(OpCode::exp, of_heads(b.vector("linear_attn.A_log", heads, Init::ones)));
  const ValueId o = gated_delta_rule(b, {.q = b.columns(qkv, 0, keys),
                                         .k = b.columns(qkv, keys, keys),
                                         .v = b.columns(qkv, 2 * keys, values),
                                         .log_decay = builder.neg(builder.mul(rate, step)),
                                         .beta = builder.unary(OpCode::logistic, beta_in),
                                         .key_heads = spec.linear_key_heads,
                                         .value_heads = heads,
                                         .key_dim = spec.linear_key_dim,
                                         .value_dim = spec.linear_value_dim});
  const ValueId normed = b.join_rows(b.rms_norm(b.split_rows(o, heads), "linear_attn.norm"), heads);
  const ValueId gated =
      b.mul(normed, b.activation(z, "linear_attn.gate", MlpAct::silu), "linear_attn.gate");
  return b.linear(gated, "linear_attn.out_proj", spec.hidden, {.use = MatrixUse::residual});
}

ValueId full_attention(Blocks& b, ValueId x) {
  const ModelSpec& spec = b.spec();
  const int64_t width = spec.head_dim, n_kv = spec.kv_heads * width;
  const LinearOptions in = {.bias = bias_if(spec.attention_bias)};
  const ValueId both =
      b.split_rows(b.linear(x, "self_attn.q_proj", 2 * spec.heads * width, in), spec.heads);
  const ValueId k = b.split_rows(b.linear(x, "self_attn.k_proj", n_kv, in), spec.kv_heads);
  const ValueId v = b.linear(x, "self_attn.v_proj", n_kv, in);
  const ValueId gate = b.join_rows(b.columns(both, width, width), spec.heads);
  const ValueId q = b.rms_norm_from_one(b.columns(both, 0, width), "self_attn.q_norm");
  const ValueId query = b.rope(b.join_rows(q, spec.heads), spec.heads);
  const ValueId key =
      b.rope(b.join_rows(b.rms_norm_from_one(k, "self_attn.k_norm"), spec.kv_heads), spec.kv_heads);
  const ValueId o = b.attention(query, key, v);
  b.module("self_attn.gate");
  const ValueId open = b.builder().unary(OpCode::logistic, gate);
  return b.linear(b.mul(o, open, "self_attn.gate"), "self_attn.o_proj", spec.hidden,
                  {.use = MatrixUse::residual, .bias = bias_if(spec.attention_bias)});
}

ValueId logits(Blocks& b) {
  const ModelSpec& spec = b.spec();
  b.enter(-1, "model.");
  ValueId x = b.token_embedding("embed_tokens");
  for (int layer = 0; layer < spec.layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    const ValueId read = b.rms_norm_from_one(x, "input_layernorm");
    const bool is_linear = spec.linear_layers[static_cast<size_t>(layer)] != 0;
    x = b.add(x, is_linear ? linear_attention(b, read) : full_attention(b, read));
    x = b.add(x, b.mlp(b.rms_norm_from_one(x, "post_attention_layernorm"), {}));
  }
  b.enter(-1, "model.");
  return b.head(b.rms_norm_from_one(x, "norm"), "model.embed_tokens.weight");
}

constexpr ModelDef definition() {
  ModelDef def =
      rotary_model(ModelKind::qwen3_5, "qwen3_5_text", "Qwen3_5ForCausalLM", kKeys, kNeutrals);
  def.logits = logits;
  def.skips = skips;
  def.fault = fault;
  return def;
}

}  // namespace

constinit const ModelDef kQwen35 = definition();

}  // namespace octet
