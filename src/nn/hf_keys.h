// Keys of config.json that several models share.
#pragma once

#include "nn/fields.h"

namespace octet {

// Decoders of Llama's kin. The angles' base and their scaling stand together in newer files.
inline constexpr HfKey kRotaryKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "ffn", .key = "intermediate_size"},
    {.field = "layers", .key = "num_hidden_layers"},
    {.field = "heads", .key = "num_attention_heads"},
    {.field = "kv_heads", .key = "num_key_value_heads", .absent = 0},
    {.field = "head_dim", .key = "head_dim", .absent = 0},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = 2048},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 0},
    {.field = "rope_theta", .key = "rope_theta", .newer = "rope/rope_theta", .absent = 10000},
    {.field = "rope_scaling.type", .key = "rope/rope_type", .older = "rope/type", .absent = 0},
    {.field = "rope_scaling.factor", .key = "rope/factor"},
    {.field = "rope_scaling.low_freq_factor", .key = "rope/low_freq_factor", .absent = 1},
    {.field = "rope_scaling.high_freq_factor", .key = "rope/high_freq_factor", .absent = 4},
    {.field = "rope_scaling.original_max_position",
     .key = "rope/original_max_position_embeddings",
     .absent = 8192},
};

inline constexpr HfNeutral kGatedNeutrals[] = {
    {.key = "hidden_act", .value = "\"silu\"", .also = "\"swish\""},
    {.key = "attention_bias", .value = "false"},
    {.key = "mlp_bias", .value = "false"},
    {.key = "clip_qkv", .value = "null"},
};

}  // namespace octet
