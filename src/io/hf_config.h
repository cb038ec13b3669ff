// A Hugging Face model folder's config.json, as far as Octet's model families need it.
//
// Keys that change the mathematics and are not supported (RoPE kinds, activations, attention
// variants) are errors that name the key; keys about training, tokens to generate and software
// versions are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"

namespace octet {

enum class ModelType { llama, olmo, gpt2 };
enum class HfActivation { silu, gelu, gelu_tanh };
enum class RopeKind { plain, linear, llama3 };

std::string_view model_type_name(ModelType type);

struct HfRopeScaling {
  RopeKind kind = RopeKind::plain;
  double factor = 1.0;
  double low_freq_factor = 1.0;  // llama3 alone, as the next two
  double high_freq_factor = 4.0;
  int64_t original_max_positions = 8192;
};

// Names follow the llama keys; for gpt2 they are read from n_embd, n_layer, ...
struct HfConfig {
  ModelType model_type = ModelType::llama;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double norm_eps = 1e-5;  // rms_norm_eps, layer_norm_epsilon; olmo: always 1e-5
  double rope_theta = 10000.0;
  HfRopeScaling rope_scaling;
  HfActivation activation = HfActivation::silu;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  std::optional<double> clip_qkv;  // olmo
  std::optional<int64_t> bos_token_id, eos_token_id;
  std::string torch_dtype;  // "" when absent
};

// Throws Error{bad_data} with the file and the key. `where` stands in messages.
HfConfig parse_hf_config(const std::string& text, const std::string& where);
HfConfig read_hf_config(const Files& files, const std::string& model_folder);

}  // namespace octet
