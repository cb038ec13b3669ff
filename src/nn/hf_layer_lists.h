// Lists of config.json that say something of each layer. Each throws Error{bad_data} for what the
// model does not have.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "nn/model.h"

namespace octet {

inline constexpr const char *kLayerTypesKey = "layer_types",
                            *kWindowPattern = "sliding_window_pattern",
                            *kAttentionInterval = "full_attention_interval",
                            *kLayerConfig = "per_layer_config";
inline constexpr const char *kFullLayers = "full_attention", *kWindowLayers = "sliding_attention",
                            *kLinearLayers = "linear_attention";
inline constexpr const char *kRopeByLayer = "rope_parameters", *kRopeOfAll = "rope_scaling";

// "[config.json] FILE: 'KEY': expected ..., got ...".
[[noreturn]] void bad_key(const JsonObject& json, std::string_view key, std::string_view expected,
                          std::string_view got);

// An integer; of pictures and their patches also a list of two equal ones: they are squares.
int64_t integer_or_side(const JsonObject& json, const std::string& key);

// Whether rope_parameters has an object for each sort of layer, of a model whose angles differ so.
bool has_rope_by_layer(const ModelDef& def, const JsonObject& json);
// Of such a model: rope_parameters has these objects, and rope_scaling beside it says the same of
// full_attention.
void expect_rope_of_layers(const ModelDef& def, const JsonObject& json);
// A 1 for each layer with rotary positions: every n-th must be without.
void read_no_rope_layers(const ModelDef& def, const JsonObject& json, ModelSpec& spec);
// Without layer_types: all layers but each n-th have a window, or are of the gated delta rule, by a
// key or by the kind.
void take_usual_layers(const ModelDef& def, const JsonObject& json, ModelSpec& spec);
// Which layers have a sliding window: from one on, or one by one where the model has that; or which
// are of the gated delta rule.
void read_layer_types(const ModelDef& def, const JsonObject& json, ModelSpec& spec);
// Of gemma4_text: puts what transformers saves of single layers into the keys that the model's own
// files have for those with full attention.
void take_layer_config(Json& config, const std::string& where);

}  // namespace octet
