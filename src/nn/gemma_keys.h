// Keys that Gemma 2 and 3 share, and what they are where a file has none.
#pragma once

#include "nn/fields.h"

namespace octet {

inline constexpr HfKey kGemmaAct = {
    .field = "mlp_act", .key = "hidden_activation", .absent = static_cast<int>(MlpAct::gelu_tanh)};
inline constexpr HfKey kGemmaHeadDim = {.field = "head_dim", .key = "head_dim", .absent = 256};
inline constexpr HfKey kGemmaKvHeads = {
    .field = "kv_heads", .key = "num_key_value_heads", .absent = 4};
inline constexpr HfKey kGemmaWindow = {
    .field = "sliding_window", .key = "sliding_window", .absent = 4096, .zero_is_null = true};
inline constexpr HfKey kGemmaTied = {.field = "tied", .key = "tie_word_embeddings", .absent = 1};

}  // namespace octet
