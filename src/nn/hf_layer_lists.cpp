#include "nn/hf_layer_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "nn/hf_keys.h"
#include "nn/hf_words.h"
#include "nn/shape.h"

namespace octet {
namespace {

const Json& list_of_layers(const JsonObject& json, const ModelSpec& spec, const std::string& key) {
  const Json& list = json.at(key);
  if (!list.is_array() || static_cast<int64_t>(list.size()) < spec.layers) {
    bad_key(json, key, fmt::format("a list of {} layers", spec.layers),
            list.is_array() ? fmt::to_string(list.size()) : list.type_name());
  }
  return list;
}

}  // namespace

void bad_key(const JsonObject& json, std::string_view key, std::string_view expected,
             std::string_view got) {
  throw Error(ErrorCode::bad_data, "[config.json] {}: '{}': expected {}, got {}", json.where(), key,
              expected, got);
}

int64_t integer_or_side(const JsonObject& json, const std::string& key) {
  const bool is_of_pictures = key == "image_size" || key == "patch_size";
  if (!is_of_pictures || !json.has(key) || !json.at(key).is_array()) return json.integer(key);
  const Json& list = json.at(key);
  const auto is_integer = [](const Json& one) { return one.is_number_integer(); };
  if (list.size() != 2 || !std::ranges::all_of(list, is_integer) || list[0] != list[1])
    bad_key(json, key, "an integer, or two equal ones", list.dump());
  return list[0].get<int64_t>();
}

bool has_rope_by_layer(const ModelDef& def, const JsonObject& json) {
  if (find_hf_key(def, "window_rope_theta") == nullptr || !json.has(kRopeByLayer)) return false;
  const Json& rope = json.at(kRopeByLayer);
  return rope.is_object() && (rope.contains(kFullLayers) || rope.contains(kWindowLayers));
}

void expect_rope_of_layers(const ModelDef& def, const JsonObject& json) {
  if (find_hf_key(def, "window_rope_theta") == nullptr || !json.has(kRopeByLayer)) return;
  if (!has_rope_by_layer(def, json)) {
    if (asks_nothing(json.at(kRopeByLayer))) return;
    bad_key(json, kRopeByLayer, "an object for full_attention and one for sliding_attention",
            "values for all layers");
  }
  if (!json.has(kRopeOfAll) || asks_nothing(json.at(kRopeOfAll))) return;
  const Json full = json.at(kRopeByLayer).value(kFullLayers, Json::object());
  if (!full.is_object()) return;
  for (const auto& [key, value] : json.object(kRopeOfAll).items()) {
    const Json same = key == "type" ? full.value("rope_type", Json()) : Json();
    if (full.value(key, same) == value) continue;
    bad_key(json, fmt::format("{}.{}", kRopeOfAll, key),
            fmt::format("what {}.{} says ({})", kRopeByLayer, kFullLayers,
                        full.value(key, same).dump()),
            value.is_structured() ? value.type_name() : value.dump());
  }
}

void read_no_rope_layers(const ModelDef& def, const JsonObject& json, ModelSpec& spec) {
  const Json& list = list_of_layers(json, spec, "no_rope_layers");
  const auto is_without = [&](int64_t layer) { return list[static_cast<size_t>(layer)] == 0; };
  int64_t every = 0;
  for (int64_t i = spec.layers - 1; i >= 0; --i) every = is_without(i) ? i + 1 : every;
  for (int64_t i = 0; i < spec.layers; ++i) {
    const bool expected = every > 0 && (i + 1) % every == 0;
    const bool has_field = every == 0 || find_hf_key(def, "no_rope_every") != nullptr;
    const Json& got = list[static_cast<size_t>(i)];
    const auto is = [&](int mark) { return got == mark; };
    if (is_without(i) == expected && has_field && (is(0) || is(1))) continue;
    bad_key(json, "no_rope_layers", "a 0 for each n-th layer and 1 for the others",
            fmt::format("{} for layer {}", got.dump(), i));
  }
  if (every > 0 || spec.no_rope_every <= spec.layers) spec.no_rope_every = every;
}

void take_usual_layers(const ModelDef& def, const JsonObject& json, ModelSpec& spec) {
  if (find_hf_key(def, "linear_layers") != nullptr) {
    const bool has_key = json.has(kAttentionInterval);
    const int64_t every = has_key ? json.integer(kAttentionInterval) : kAttentionEvery;
    if (every < 1) bad_key(json, kAttentionInterval, "1 or more", fmt::to_string(every));
    spec.linear_layers = all_but_every(every, spec.layers);
  }
  if (find_hf_key(def, kLayerTypes.field) == nullptr) return;
  if (def.full_every == 0 || !json.has(kWindowPattern)) return;
  const int64_t every = json.integer(kWindowPattern);
  if (!def.reads_window_pattern && every != def.full_every) {
    bad_key(json, kWindowPattern,
            fmt::format("{} without layer_types for model_type {}", def.full_every, def.name),
            fmt::to_string(every));
  }
  if (every == def.full_every) return;
  if (every < 1)
    bad_key(json, kWindowPattern, "1 or more without layer_types", fmt::to_string(every));
  spec.window_layers = all_but_every(every, spec.layers);
}

namespace {

void read_linear_layers(const JsonObject& json, const Json& list, ModelSpec& spec) {
  spec.linear_layers.clear();
  for (int64_t i = 0; i < spec.layers; ++i) {
    const Json& type = list[static_cast<size_t>(i)];
    if (type != kLinearLayers && type != kFullLayers) {
      bad_key(json, kLayerTypesKey, "linear_attention or full_attention",
              fmt::format("{} for layer {}", type.dump(), i));
    }
    spec.linear_layers.push_back(type == kLinearLayers ? 1 : 0);
  }
}

}  // namespace

void read_layer_types(const ModelDef& def, const JsonObject& json, ModelSpec& spec) {
  const Json& list = list_of_layers(json, spec, kLayerTypesKey);
  if (find_hf_key(def, "linear_layers") != nullptr) return read_linear_layers(json, list, spec);
  const bool has_window = spec.sliding_window > 0;
  const bool is_free = find_hf_key(def, kLayerTypes.field) != nullptr;
  const bool has_first = find_hf_key(def, "window_from") != nullptr;
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < spec.layers; ++i) {
    const Json& type = list[static_cast<size_t>(i)];
    windows.push_back(type == kWindowLayers ? 1 : 0);
    const bool follows = is_free || has_first || type == kWindowLayers;
    if (has_window ? type == kWindowLayers || (type == kFullLayers && follows)
                   : type == kFullLayers)
      continue;
    const std::string expected = !has_window ? "full_attention of all layers"
                                 : follows
                                     ? "full_attention or sliding_attention"
                                     : fmt::format("sliding_attention for model_type {}", def.name);
    bad_key(json, kLayerTypesKey, expected, fmt::format("{} for layer {}", type.dump(), i));
  }
  spec.window_layers.clear();
  const auto first = std::ranges::find(windows, 1);
  if (has_first && std::all_of(first, windows.end(), [](int64_t one) { return one == 1; })) {
    if (has_window) spec.window_from = first - windows.begin();
  } else if (is_free && (has_window || def.full_every > 0)) {
    if (has_first) spec.window_from = 0;
    spec.window_layers = windows;
  }
}

void take_layer_config(Json& config, const std::string& where) {
  if (!config.is_object() || !config.contains(kLayerConfig)) return;
  const ModelDef* def = config.contains("model_type") && config["model_type"].is_string()
                            ? find_model(config["model_type"].get<std::string>())
                            : nullptr;
  if (def == nullptr || find_hf_key(*def, "global_head_dim") == nullptr) return;
  const JsonObject json(config, where);
  const Json layers = config[kLayerConfig];
  const auto is_full = [&](const std::string& layer) {
    const Json& types = json.at(kLayerTypesKey);
    for (size_t i = 0; types.is_array() && i < types.size(); ++i)
      if (fmt::to_string(i) == layer) return types[i] == kFullLayers;
    return false;
  };
  const auto is_known = [](const Json& values) {
    return values.is_object() && std::ranges::all_of(values.items(), [](const auto& item) {
             return item.key() == "head_dim" || item.key() == "num_key_value_heads";
           });
  };
  const Json& types = json.at(kLayerTypesKey);
  const auto n_full = types.is_array() ? std::ranges::count(types, Json(kFullLayers)) : 0;
  bool is_good = layers.is_object() && (layers.empty() || std::ssize(layers) == n_full);
  for (auto it = layers.begin(); is_good && it != layers.end(); ++it)
    is_good = is_full(it.key()) && is_known(*it) && *it == *layers.begin();
  if (!is_good) {
    bad_key(json, kLayerConfig,
            "head_dim and num_key_value_heads of all full_attention layers, the same for each",
            layers.dump());
  }
  const Json own = layers.empty() ? Json::object() : *layers.begin();
  const Json shared = config.contains("head_dim") ? config["head_dim"] : Json();
  config["global_head_dim"] = own.contains("head_dim") ? own["head_dim"] : shared;
  config["num_global_key_value_heads"] =
      own.contains("num_key_value_heads") ? own["num_key_value_heads"] : Json();
  config.erase(kLayerConfig);
}

}  // namespace octet
