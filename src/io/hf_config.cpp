#include "io/hf_config.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace octet {
namespace {

[[noreturn]] void bad(const JsonObject& json, const std::string& what) {
  throw Error(ErrorCode::bad_data, "[config.json] {}: {}", json.where(), what);
}

int64_t positive(const JsonObject& json, const std::string& key, int64_t fallback = 0) {
  const int64_t value = fallback != 0 ? json.integer_or(key, fallback) : json.integer(key);
  if (value <= 0 || value > INT32_MAX) {
    bad(json, fmt::format("'{}' must be from 1 to {}, got {}", key, INT32_MAX, value));
  }
  return value;
}

double positive_number(const JsonObject& json, const std::string& key, double fallback) {
  const double value = json.number_or(key, fallback);
  if (!(value > 0)) bad(json, fmt::format("'{}' must be above 0, got {}", key, value));
  return value;
}

void expect_absent(const JsonObject& json, const std::string& key) {
  if (json.boolean_or(key, false)) bad(json, fmt::format("'{}: true' is not supported", key));
}

// A list of end tokens counts by its first.
std::optional<int64_t> token_id(const JsonObject& json, const std::string& key) {
  if (!json.has(key)) return std::nullopt;
  const Json& value = json.at(key);
  if (value.is_array() && !value.empty() && value[0].is_number_integer()) {
    return value[0].get<int64_t>();
  }
  return json.integer(key);
}

HfActivation parse_activation(const JsonObject& json, const std::string& key,
                              const std::string& fallback) {
  const std::string name = json.string_or(key, fallback);
  if (name == "silu" || name == "swish") return HfActivation::silu;
  if (name == "gelu") return HfActivation::gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return HfActivation::gelu_tanh;
  bad(json,
      fmt::format("'{}' must be silu, gelu, gelu_new or gelu_pytorch_tanh, got '{}'", key, name));
}

HfRopeScaling parse_rope_scaling(const JsonObject& json) {
  HfRopeScaling scaling;
  const std::string kind = json.string_or("rope_type", json.string_or("type", "default"));
  if (kind == "default") return scaling;
  scaling.factor = positive_number(json, "factor", 0.0);
  if (kind == "linear") {
    scaling.kind = RopeKind::linear;
    return scaling;
  }
  if (kind != "llama3") {
    bad(json, fmt::format("rope_scaling must be default, linear or llama3, got '{}'", kind));
  }
  scaling.kind = RopeKind::llama3;
  scaling.low_freq_factor = positive_number(json, "low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = positive_number(json, "high_freq_factor", scaling.high_freq_factor);
  scaling.original_max_positions =
      positive(json, "original_max_position_embeddings", scaling.original_max_positions);
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    bad(json, fmt::format("'high_freq_factor' must be above {}, got {}", scaling.low_freq_factor,
                          scaling.high_freq_factor));
  }
  return scaling;
}

void parse_llama_keys(const JsonObject& json, HfConfig& config) {
  config.hidden_size = positive(json, "hidden_size");
  config.intermediate_size = positive(json, "intermediate_size");
  config.num_hidden_layers = positive(json, "num_hidden_layers");
  config.num_attention_heads = positive(json, "num_attention_heads");
  config.num_key_value_heads = positive(json, "num_key_value_heads", config.num_attention_heads);
  config.max_position_embeddings = positive(json, "max_position_embeddings", 2048);
  if (json.has("head_dim")) config.head_dim = positive(json, "head_dim");
  if (config.model_type == ModelType::llama) {
    config.norm_eps = positive_number(json, "rms_norm_eps", 1e-6);
  }
  config.activation = parse_activation(json, "hidden_act", "silu");
  config.tie_word_embeddings = json.boolean_or("tie_word_embeddings", false);
  config.attention_bias = json.boolean_or("attention_bias", false);
  config.mlp_bias = json.boolean_or("mlp_bias", false);
  if (json.has("clip_qkv")) config.clip_qkv = positive_number(json, "clip_qkv", 0.0);
  // Newer files keep the angle's base and its scaling together in rope_parameters.
  const std::string rope = json.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (json.has(rope)) config.rope_scaling = parse_rope_scaling(json.object(rope));
  const bool is_inside = json.has(rope) && json.object(rope).has("rope_theta");
  config.rope_theta = positive_number(is_inside ? json.object(rope) : json, "rope_theta", 10000.0);
}

void parse_gpt2_keys(const JsonObject& json, HfConfig& config) {
  config.hidden_size = positive(json, "n_embd");
  config.intermediate_size = positive(json, "n_inner", 4 * config.hidden_size);
  config.num_hidden_layers = positive(json, "n_layer");
  config.num_attention_heads = positive(json, "n_head");
  config.num_key_value_heads = config.num_attention_heads;
  config.max_position_embeddings =
      positive(json, json.has("n_positions") ? "n_positions" : "n_ctx", 1024);
  config.norm_eps = positive_number(json, "layer_norm_epsilon", 1e-5);
  config.activation = parse_activation(json, "activation_function", "gelu_new");
  config.tie_word_embeddings = json.boolean_or("tie_word_embeddings", true);
  config.attention_bias = config.mlp_bias = true;
  expect_absent(json, "scale_attn_by_inverse_layer_idx");
  if (!json.boolean_or("scale_attn_weights", true)) {
    bad(json, "'scale_attn_weights: false' is not supported");
  }
}

}  // namespace

std::string_view model_type_name(ModelType type) {
  switch (type) {
    case ModelType::llama:
      return "llama";
    case ModelType::olmo:
      return "olmo";
    case ModelType::gpt2:
      return "gpt2";
  }
  return "?";
}

HfConfig parse_hf_config(const std::string& text, const std::string& where) {
  const Json root = parse_json(text, where);
  const JsonObject json(root, where);
  HfConfig config;
  const std::string type = json.string("model_type");
  if (type == "llama") {
    config.model_type = ModelType::llama;
  } else if (type == "olmo") {
    config.model_type = ModelType::olmo;
  } else if (type == "gpt2") {
    config.model_type = ModelType::gpt2;
  } else {
    bad(json, fmt::format("'model_type' must be llama, olmo or gpt2, got '{}'", type));
  }
  config.vocab_size = positive(json, "vocab_size");
  if (config.model_type == ModelType::gpt2) {
    parse_gpt2_keys(json, config);
  } else {
    parse_llama_keys(json, config);
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    bad(json, fmt::format("'num_key_value_heads' must divide {}, got {}",
                          config.num_attention_heads, config.num_key_value_heads));
  }
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      bad(json, fmt::format("the number of heads must divide {}, got {}", config.hidden_size,
                            config.num_attention_heads));
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  config.bos_token_id = token_id(json, "bos_token_id");
  config.eos_token_id = token_id(json, "eos_token_id");
  config.torch_dtype = json.string_or("torch_dtype", json.string_or("dtype", ""));
  return config;
}

HfConfig read_hf_config(const Files& files, const std::string& model_folder) {
  const std::string path = join_path(model_folder, "config.json");
  return parse_hf_config(files.read_text(path), path);
}

}  // namespace octet
