#include "infer/model_spec.h"

#include "base/error.h"
#include "base/json.h"
#include "config/table.h"

namespace octet {
namespace {

RopeScaling rope_scaling_from_name(const std::string& name) {
  for (int i = 0; i < enum_count(RopeScaling{}); ++i) {
    if (enum_name(static_cast<RopeScaling>(i)) == name) return static_cast<RopeScaling>(i);
  }
  throw Error(ErrorCode::invalid_argument,
              "model.rope_scaling.type: expected none, linear or llama3, got '{}'", name);
}

void fill_rope(ModelSpec& spec, const HfConfig& config) {
  spec.rope_theta = config.rope_theta;
  switch (config.rope_scaling.kind) {
    case RopeKind::plain:
      spec.rope_scaling = RopeScaling::none;
      return;
    case RopeKind::linear:
      spec.rope_scaling = RopeScaling::linear;
      break;
    case RopeKind::llama3:
      spec.rope_scaling = RopeScaling::llama3;
      break;
  }
  spec.rope_factor = config.rope_scaling.factor;
  spec.rope_low_freq_factor = config.rope_scaling.low_freq_factor;
  spec.rope_high_freq_factor = config.rope_scaling.high_freq_factor;
  spec.rope_original_max_position = config.rope_scaling.original_max_positions;
}

void check_variant(const HfConfig& config, const std::string& where) {
  const auto refuse = [&](bool refused, std::string_view key, std::string_view expected) {
    if (!refused) return;
    throw Error(ErrorCode::bad_data, "[model] {}: '{}': expected {} for model_type {}", where, key,
                expected, model_type_name(config.model_type));
  };
  if (config.model_type == ModelType::gpt2) {
    refuse(config.activation == HfActivation::silu, "activation_function", "a gelu");
    return;
  }
  refuse(config.attention_bias, "attention_bias", "false");
  refuse(config.mlp_bias, "mlp_bias", "false");
  refuse(config.clip_qkv.has_value(), "clip_qkv", "null");
  refuse(config.activation != HfActivation::silu, "hidden_act", "silu");
}

// A folder's shape has the bounds of the configuration's keys.
void check_bounds(const HfConfig& config, const std::string& where) {
  struct Key {
    std::string_view row, name, gpt2_name;
    double value;
  };
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const HfRopeScaling& rope = config.rope_scaling;
  const Key keys[] = {
      {"model.hidden", "hidden_size", "n_embd", number(config.hidden_size)},
      {"model.layers", "num_hidden_layers", "n_layer", number(config.num_hidden_layers)},
      {"model.heads", "num_attention_heads", "n_head", number(config.num_attention_heads)},
      {"model.kv_heads", "num_key_value_heads", "n_head", number(config.num_key_value_heads)},
      {"model.head_dim", "head_dim", "n_embd", number(config.head_dim)},
      {"model.ffn", "intermediate_size", "n_inner", number(config.intermediate_size)},
      {"model.vocab", "vocab_size", "vocab_size", number(config.vocab_size)},
      {"model.seq", "max_position_embeddings", "n_positions",
       number(config.max_position_embeddings)},
      {"model.norm_eps", "rms_norm_eps", "layer_norm_epsilon", config.norm_eps},
      {"model.rope_theta", "rope_theta", "", config.rope_theta},
      {"model.rope_scaling.factor", "factor", "", rope.factor},
      {"model.rope_scaling.low_freq_factor", "low_freq_factor", "", rope.low_freq_factor},
      {"model.rope_scaling.high_freq_factor", "high_freq_factor", "", rope.high_freq_factor},
      {"model.rope_scaling.original_max_position", "original_max_position_embeddings", "",
       number(rope.original_max_positions)},
  };
  for (const Key& key : keys) {
    const ConfigRow* row = find_config_row(key.row);
    CHECK(row != nullptr);
    if (is_within(row->limits, key.value)) continue;
    throw Error(ErrorCode::bad_data, "[model] {}: '{}': expected {}, got {}", where,
                config.model_type == ModelType::gpt2 ? key.gpt2_name : key.name,
                expected_text(*row), key.value);
  }
}

ModelKind kind_from_hf(ModelType type) {
  switch (type) {
    case ModelType::llama:
      return ModelKind::llama;
    case ModelType::olmo:
      return ModelKind::olmo;
    case ModelType::gpt2:
      return ModelKind::gpt2;
  }
  CHECK(false);
  return ModelKind::llama;
}

Json rope_json(const ModelSpec& spec) {
  switch (spec.rope_scaling) {
    case RopeScaling::none:
      return nullptr;
    case RopeScaling::linear:
      return {{"rope_type", "linear"}, {"factor", spec.rope_factor}};
    case RopeScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", spec.rope_factor},
              {"low_freq_factor", spec.rope_low_freq_factor},
              {"high_freq_factor", spec.rope_high_freq_factor},
              {"original_max_position_embeddings", spec.rope_original_max_position}};
  }
  CHECK(false);
  return nullptr;
}

Json gpt2_json(const ModelSpec& spec) {
  return {{"n_embd", spec.hidden},
          {"n_inner", spec.ffn},
          {"n_layer", spec.layers},
          {"n_head", spec.heads},
          {"n_positions", spec.max_positions},
          {"layer_norm_epsilon", spec.norm_eps},
          {"activation_function", spec.gelu == GeluKind::tanh ? "gelu_new" : "gelu"}};
}

Json rotary_json(const ModelSpec& spec) {
  return {{"hidden_size", spec.hidden},
          {"intermediate_size", spec.ffn},
          {"num_hidden_layers", spec.layers},
          {"num_attention_heads", spec.heads},
          {"num_key_value_heads", spec.kv_heads},
          {"head_dim", spec.head_dim},
          {"max_position_embeddings", spec.max_positions},
          {"rms_norm_eps", spec.norm_eps},
          {"hidden_act", "silu"},
          {"rope_theta", spec.rope_theta},
          {"rope_scaling", rope_json(spec)}};
}

}  // namespace

ModelSpec model_from_hf(const HfConfig& config, const std::string& where) {
  check_variant(config, where);
  check_bounds(config, where);
  ModelSpec spec;
  spec.kind = kind_from_hf(config.model_type);
  spec.hidden = config.hidden_size;
  spec.layers = config.num_hidden_layers;
  spec.heads = config.num_attention_heads;
  spec.kv_heads = config.num_key_value_heads;
  spec.head_dim = config.head_dim;
  spec.ffn = config.intermediate_size;
  spec.vocab = config.vocab_size;
  spec.max_positions = config.max_position_embeddings;
  spec.norm_eps = config.norm_eps;
  spec.tied = config.tie_word_embeddings;
  spec.gelu = config.activation == HfActivation::gelu ? GeluKind::erf : GeluKind::tanh;
  if (config.model_type != ModelType::gpt2) fill_rope(spec, config);
  return resolved(spec);
}

ModelSpec model_from_config(const Files& files, const RunConfig& config) {
  const ModelConfig& model = config.model;
  if (!model.path.empty()) return model_from_hf(read_hf_config(files, model.path), model.path);
  const ModelDef* def = find_model(model.kind);
  if (def == nullptr) {
    throw Error(ErrorCode::invalid_argument, "model.kind: expected a known model, got '{}'",
                model.kind);
  }
  ModelSpec spec;
  spec.kind = def->kind;
  spec.hidden = model.hidden;
  spec.layers = model.layers;
  spec.heads = model.heads;
  spec.kv_heads = model.kv_heads;
  spec.head_dim = model.head_dim;
  spec.ffn = model.ffn;
  spec.vocab = model.vocab;
  spec.max_positions = model.seq;
  spec.norm_eps = model.norm_eps;
  spec.tied = model.tied;
  spec.rope_theta = model.rope_theta;
  spec.rope_scaling = rope_scaling_from_name(model.rope_scaling.type);
  spec.rope_factor = model.rope_scaling.factor;
  spec.rope_low_freq_factor = model.rope_scaling.low_freq_factor;
  spec.rope_high_freq_factor = model.rope_scaling.high_freq_factor;
  spec.rope_original_max_position = model.rope_scaling.original_max_position;
  return resolved(spec);
}

std::string hf_config_text(const ModelSpec& spec) {
  const ModelSpec full = resolved(spec);
  const ModelDef& def = model_def(full.kind);
  Json json = full.kind == ModelKind::gpt2 ? gpt2_json(full) : rotary_json(full);
  json["architectures"] = Json::array({std::string(def.architecture)});
  json["model_type"] = std::string(def.name);
  json["vocab_size"] = full.vocab;
  json["tie_word_embeddings"] = full.tied;
  return json.dump(1) + "\n";
}

ForwardBuilder forward_builder(const ModelSpec& spec) {
  return [spec](const BatchSize& size, ForwardKind kind) {
    const ModelOutputs outputs =
        kind == ForwardKind::loss ? ModelOutputs::loss : ModelOutputs::logits;
    return build_model(spec, {.batch = size.batch, .seq = size.seq}, outputs).graph;
  };
}

}  // namespace octet
