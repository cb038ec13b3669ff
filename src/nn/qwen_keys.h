// Values that Qwen 2 and 3 take where a key of config.json is missing.
#pragma once

#include "nn/fields.h"

namespace octet {

inline constexpr HfKey kQwenKvHeads = {
    .field = "kv_heads", .key = "num_key_value_heads", .absent = 32, .zero_is_null = true};
inline constexpr HfKey kQwenPositions = {
    .field = "max_positions", .key = "max_position_embeddings", .absent = 32768};
inline constexpr HfKey kQwenWindow = {.field = "sliding_window",
                                      .key = "sliding_window",
                                      .absent = 4096,
                                      .zero_is_null = true,
                                      .gate = "use_sliding_window"};
inline constexpr HfKey kQwenWindowFrom = {
    .field = "window_from", .key = "max_window_layers", .absent = 28};

}  // namespace octet
