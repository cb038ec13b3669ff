// The shape of a model, and nothing of how it is trained: what run files, config.json and model
// builders share. nn/fields.h names its fields; a new one is a member here and a row there.
#pragma once

#include <cstdint>
#include <string>

#include "ir/attr_enums.h"

namespace octet {

enum class ModelKind : uint8_t { llama, olmo, gpt2 };

// Zeros are filled by resolved().
struct ModelSpec {
  ModelKind kind = ModelKind::llama;
  int64_t hidden = 512;
  int64_t layers = 8;
  int64_t heads = 8;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // 0: by kind
  int64_t vocab = 256;
  int64_t max_positions = 2048;  // gpt2: rows of the position table; a bound of nothing elsewhere
  double norm_eps = 1e-5;
  bool tied = false;               // the head shares the embedding's weight
  GeluKind gelu = GeluKind::tanh;  // gpt2
  double rope_theta = 10000;       // rotary models; as are the fields below
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  int64_t rope_original_max_position = 8192;
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace octet
