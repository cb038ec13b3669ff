// Gemma 4, of text and dense: Gemma 3 with norms of values and scores that are not scaled, heads of
// another width in layers without a window, whose last pairs do not turn; each layer may read a
// table of its own, and the last ones an earlier layer's keys and values. Source: Gemma Team 2026.
// Names: Gemma4ForCausalLM.
#include <algorithm>
#include <cmath>

#include "nn/gemma_keys.h"
#include "nn/rotary_model.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "layers", .key = "num_hidden_layers"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "ffn", .key = "intermediate_size"},
    {.field = "heads", .key = "num_attention_heads"},
    kGemmaKvHeads,
    {.field = "global_kv_heads",
     .key = "num_global_key_value_heads",
     .absent = 0,
     .zero_is_null = true},
    kGemmaHeadDim,
    {.field = "global_head_dim", .key = "global_head_dim", .absent = 512},
    {.field = "keys_are_values", .key = "attention_k_eq_v", .absent = 0},
    {.field = "shared_kv_layers", .key = "num_kv_shared_layers", .absent = 0},
    {.field = "wide_shared_mlp", .key = "use_double_wide_mlp", .absent = 0},
    {.field = "layer_input", .key = "hidden_size_per_layer_input", .absent = 256},
    kRmsEps,
    kAttentionBias,
    kGemmaAct,
    kGemmaTied,
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 131072},
    {.field = "sliding_window", .key = "sliding_window", .absent = 512, .zero_is_null = true},
    kLayerTypes,
    {.field = "rope_theta", .key = "rope/rope_theta", .absent = 1e6},
    {.field = "window_rope_theta", .key = "rope/sliding_attention/rope_theta", .absent = 10000},
    {.field = "rope_share", .key = "rope/partial_rotary_factor", .absent = 0.25},
    {.field = "logit_softcap",
     .key = "final_logit_softcapping",
     .absent = 0,
     .zero_is_null = true}};
constexpr HfNeutral kNeutrals[] = {
    {.key = "rope/rope_type", .value = "\"proportional\""},
    {.key = "rope/factor", .value = "1.0"},
    {.key = "rope/sliding_attention/rope_type", .value = "\"default\""},
    {.key = "enable_moe_block", .value = "false"},
    {.key = "num_experts", .value = "null"},
    {.key = "top_k_experts", .value = "null"},
    {.key = "moe_intermediate_size", .value = "null"},
    {.key = "use_bidirectional_attention", .value = "null", .also = "\"vision\""}};

// The angles' defaults are those of a file without any: where rope_parameters has an object that
// says no type, or no share, transformers turns all pairs.
std::vector<HfFollower> followers(const ModelSpec& spec) {
  return {{.key = "vocab_size_per_layer_input", .value = std::to_string(spec.vocab)},
          {.key = "rope/rope_type",
           .value = "\"proportional\"",
           .absent = "\"default\"",
           .is_written = false},
          {.key = "rope/partial_rotary_factor",
           .value = fmt::format("{}", spec.rope_share),
           .absent = "1.0",
           .is_written = false}};
}

// The layer whose keys and values layer i reads: itself, or the last one of its sort that has some.
int64_t key_layer(const ModelSpec& spec, int64_t i) {
  const int64_t owners = spec.layers - spec.shared_kv_layers;
  int64_t at = i < owners ? i : owners - 1;
  while (at >= 0 && has_window(spec, at) != has_window(spec, i)) --at;
  return at;
}

// Tensors of keys and values in layers that read an earlier layer's, which some files hold.
bool skips(const ModelSpec& spec, std::string_view stored) {
  const auto is_of = [&](int64_t layer, std::string_view module) {
    return stored.find(fmt::format("layers.{}.self_attn.{}.", layer, module)) != stored.npos;
  };
  for (int64_t i = spec.layers - spec.shared_kv_layers; i < spec.layers; ++i) {
    if (is_of(i, "k_proj") || is_of(i, "v_proj") || is_of(i, "k_norm")) return true;
  }
  return false;
}

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (std::ssize(full.window_layers) != full.layers) return std::nullopt;  // said elsewhere
  const auto of_windows = [&](std::string expected) {
    return fault_against("window_layers", "layers", std::move(expected), full);
  };
  if (full.window_layers.back() != 0) return of_windows("none with a window in the last of {}");
  if (!full.keys_are_values && full.global_kv_heads != full.kv_heads)
    return fault_against("global_kv_heads", "kv_heads", "{} without keys_are_values", full);
  if (full.heads % full.global_kv_heads != 0)
    return fault_against("global_kv_heads", "heads", "a divisor of {}", full);
  if (full.global_head_dim % 2 != 0)
    return fault_against("global_head_dim", "head_dim", "an even width beside {}", full);
  if (full.shared_kv_layers >= full.layers)
    return fault_against("shared_kv_layers", "layers", "less than {}", full);
  for (int64_t i = 0; i < full.layers; ++i) {
    if (key_layer(full, i) < 0)
      return fault_against("shared_kv_layers", "window_layers",
                           "layers of either sort before the shared ones of {}", full);
  }
  return std::nullopt;
}

// Of a head's pairs in layers without a window, rope_share turn, at the angles of the whole head.
ValueId turned(Blocks& b, ValueId x, int64_t heads, int64_t width, bool is_windowed) {
  b.module("rotary_emb");
  RopeAttrs attrs = {.heads = heads, .head_dim = width, .theta = b.spec().rope_theta};
  const auto pairs = static_cast<size_t>(width / 2);
  const auto turning = static_cast<size_t>(b.spec().rope_share * static_cast<double>(width) / 2);
  if (is_windowed) {
    attrs.theta = b.spec().window_rope_theta;
  } else if (turning < pairs) {
    constexpr double kStill = 1e30;  // no position turns by as much as single precision sees
    attrs.scaling = RopeScaling::longrope;
    attrs.divisors.assign(pairs, kStill);
    std::fill_n(attrs.divisors.begin(), turning, 1.0);
  }
  return b.builder().emit1(OpCode::rope, attrs, {x, b.input("positions")});
}

struct KeysAndValues {
  ValueId k = kNoValue, v = kNoValue;
};

// Norms of each head.
ValueId normed(Blocks& b, ValueId x, int64_t heads, std::string_view path) {
  return b.join_rows(b.rms_norm(b.split_rows(x, heads), path), heads);
}

ValueId self_attention(Blocks& b, ValueId x, int64_t layer, std::vector<KeysAndValues>& known) {
  const ModelSpec& spec = b.spec();
  const bool is_windowed = has_window(spec, layer);
  const int64_t width = is_windowed ? spec.head_dim : spec.global_head_dim;
  const int64_t kv_heads = is_windowed ? spec.kv_heads : spec.global_kv_heads;
  const LinearOptions in = {.bias = bias_if(spec.attention_bias)};
  const ValueId q = b.linear(x, "self_attn.q_proj", spec.heads * width, in);
  KeysAndValues kv;
  if (const int64_t owner = key_layer(spec, layer); owner != layer) {
    kv = known[static_cast<size_t>(owner)];
  } else {
    const ValueId k = b.linear(x, "self_attn.k_proj", kv_heads * width, in);
    const bool is_one = spec.keys_are_values && !is_windowed;
    const ValueId v = is_one ? k : b.linear(x, "self_attn.v_proj", kv_heads * width, in);
    kv.k = turned(b, normed(b, k, kv_heads, "self_attn.k_norm"), kv_heads, width, is_windowed);
    kv.v = b.join_rows(b.rms_norm_without_weights(b.split_rows(v, kv_heads), "self_attn.v_norm"),
                       kv_heads);
  }
  known.push_back(kv);
  const ValueId query =
      turned(b, normed(b, q, spec.heads, "self_attn.q_norm"), spec.heads, width, is_windowed);
  const ValueId o =
      b.attention(query, kv.k, kv.v, {.scale = 1, .kv_heads = kv_heads, .head_dim = width});
  return b.linear(o, "self_attn.o_proj", spec.hidden,
                  {.use = MatrixUse::residual, .bias = bias_if(spec.attention_bias)});
}

ValueId mlp(Blocks& b, ValueId x, int64_t layer) {
  const ModelSpec& spec = b.spec();
  const bool is_wide = spec.wide_shared_mlp && layer >= spec.layers - spec.shared_kv_layers;
  const int64_t width = is_wide ? 2 * spec.ffn : spec.ffn;
  const ValueId gate = b.linear(x, "mlp.gate_proj", width);
  const ValueId up = b.linear(x, "mlp.up_proj", width);
  return b.linear(b.mul(b.activation(gate, "mlp.act_fn"), up, "mlp.act_fn"), "mlp.down_proj",
                  spec.hidden, {.use = MatrixUse::residual});
}

// [rows, layers * layer_input]: what the layers read of each token besides.
ValueId layer_inputs(Blocks& b, ValueId embedded) {
  const ModelSpec& spec = b.spec();
  const int64_t width = spec.layers * spec.layer_input;
  Builder& builder = b.builder();
  const ValueId own = builder.scaled(b.embedding_of("embed_tokens_per_layer", b.input("tokens"),
                                                    {.n = spec.vocab, .width = width}),
                                     std::sqrt(static_cast<double>(spec.layer_input)));
  const ValueId read = builder.scaled(b.linear(embedded, "per_layer_model_projection", width),
                                      1 / std::sqrt(static_cast<double>(spec.hidden)));
  const ValueId both = b.add(normed(b, read, spec.layers, "per_layer_projection_norm"), own);
  return builder.scaled(both, std::sqrt(0.5));
}

ValueId with_layer_input(Blocks& b, ValueId x, ValueId inputs, int64_t layer) {
  const int64_t n = b.spec().layer_input;
  const ValueId gate = b.activation(b.linear(x, "per_layer_input_gate", n), "act_fn");
  const ValueId read = b.mul(gate, b.columns(inputs, layer * n, n), "act_fn");
  const ValueId y =
      b.linear(read, "per_layer_projection", b.spec().hidden, {.use = MatrixUse::residual});
  return b.add(x, b.rms_norm(y, "post_per_layer_input_norm"));
}

ValueId logits(Blocks& b) {
  const ModelSpec& spec = b.spec();
  b.enter(-1, "model.");
  ValueId x = b.builder().scaled(b.token_embedding("embed_tokens"),
                                 std::sqrt(static_cast<double>(spec.hidden)));
  const ValueId inputs = spec.layer_input > 0 ? layer_inputs(b, x) : kNoValue;
  std::vector<KeysAndValues> known;
  for (int layer = 0; layer < spec.layers; ++layer) {
    b.enter(layer, fmt::format("model.layers.{}.", layer));
    const ValueId o = self_attention(b, b.rms_norm(x, "input_layernorm"), layer, known);
    x = b.add(x, b.rms_norm(o, "post_attention_layernorm"));
    const ValueId y = mlp(b, b.rms_norm(x, "pre_feedforward_layernorm"), layer);
    x = b.add(x, b.rms_norm(y, "post_feedforward_layernorm"));
    if (spec.layer_input > 0) x = with_layer_input(b, x, inputs, layer);
    x = b.times_fixed(x, "layer_scalar");
  }
  b.enter(-1, "model.");
  return b.capped(b.head(b.rms_norm(x, "norm"), "model.embed_tokens.weight"));
}

constexpr ModelDef definition() {
  ModelDef def = rotary_model(ModelKind::gemma4, "gemma4_text", "Gemma4ForCausalLM", kKeys);
  def.hf_keys = kKeys;
  def.own_hf_keys = {};
  def.hf_neutrals = kNeutrals;
  def.hf_followers = followers;
  def.full_every = 6;
  def.last_is_full = true;
  def.logits = logits;
  def.skips = skips;
  def.fault = fault;
  return def;
}

}  // namespace

constinit const ModelDef kGemma4 = definition();

}  // namespace octet
