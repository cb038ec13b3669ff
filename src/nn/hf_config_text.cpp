// config.json as text, of a model's shape: what hf_config.cpp reads back.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "nn/hf_config.h"
#include "nn/hf_keys.h"
#include "nn/hf_parts.h"
#include "nn/hf_words.h"
#include "nn/list.h"
#include "nn/model.h"
#include "nn/shape.h"

namespace octet {
namespace {

std::string problem_type(ModelHead head) {
  return std::string(std::ranges::find(kProblemTypes, head, &ProblemType::first)->second);
}

// Rotary layers as transformers lists them: a 1 for each layer with rotary positions.
Json rope_layers(const ModelSpec& spec) {
  Json list = Json::array();
  for (int64_t i = 0; i < spec.layers; ++i) {
    const bool is_without = spec.no_rope_every > 0 && (i + 1) % spec.no_rope_every == 0;
    list.push_back(is_without ? 0 : 1);
  }
  return list;
}

Json layer_types(const ModelSpec& spec) {
  Json list = Json::array();
  for (const int64_t is_linear : spec.linear_layers)
    list.push_back(is_linear != 0 ? "linear_attention" : "full_attention");
  if (!list.empty()) return list;
  for (int64_t i = 0; i < spec.layers; ++i)
    list.push_back(has_window(spec, i) ? "sliding_attention" : "full_attention");
  return list;
}

// The decoder of a model with pictures, as the config.json of a folder of its own says it.
Json text_part(const ModelSpec& full) {
  Json json = parse_own_json(hf_config_text(text_spec(full)));
  json.erase("architectures");
  return json;
}

struct JsonValue {
  const ModelSpec& spec;
  const HfKey& key;
  template <typename T>
  Json operator()(T ModelSpec::*member) const {
    return spec.*member;
  }
  Json operator()(const ModelEnum* member) const {
    const std::span<const HfName> names = key.names.empty() ? member->hf_names : key.names;
    const auto at = std::ranges::find(names, member->get(spec), &HfName::value);
    CHECK(at != names.end());
    return std::string(at->name);
  }
};

// Keys that have one value, or one that follows from the fields.
void put_fixed_keys(const ModelSpec& full, Json& json) {
  const ModelDef& def = model_def(full.kind);
  for (const HfNeutral& neutral : def.hf_neutrals) {
    const size_t slash = neutral.key.find('/');
    if (is_rope(neutral.key)) continue;
    Json& at = slash == neutral.key.npos ? json : json[std::string(neutral.key.substr(0, slash))];
    at[std::string(neutral.key.substr(slash + 1))] = parse_own_json(neutral.value);
  }
  if (def.hf_followers != nullptr) {
    for (const HfFollower& one : def.hf_followers(full)) {
      if (one.is_written) json[std::string(one.key)] = parse_own_json(one.value);
    }
  }
}

// Names of an encoder's classes, and its task.
void put_head(const ModelSpec& full, Json& json) {
  const ModelHead head = head_of(full).head;
  const int64_t n_labels = has_classes(head) ? full.classes : head == ModelHead::value ? 1 : 0;
  for (int64_t i = 0; i < n_labels; ++i) {
    const std::string label = fmt::format("LABEL_{}", i);
    json["id2label"][fmt::to_string(i)] = label;
    json["label2id"][label] = i;
  }
  const auto& heads = model_def(full.kind).heads;
  const bool reads_as_value =
      n_labels == 1 && std::ranges::count(heads, ModelHead::value, &HeadDef::head) > 0;
  if (reads_as_value || head == ModelHead::multi_label) json["problem_type"] = problem_type(head);
}

// Keys of rotary positions that have one value.
Json fixed_rope(const ModelDef& def) {
  Json parameters;
  for (const HfNeutral& neutral : def.hf_neutrals) {
    if (is_rope(neutral.key) && !is_window_rope(neutral.key))
      parameters[without_object(neutral.key)] = parse_own_json(neutral.value);
  }
  return parameters;
}

}  // namespace

HfFollower follower_name(std::string_view key, double value) {
  return {.key = key, .value = fmt::format("{}", value), .is_written = false};
}

std::string hf_config_text(const ModelSpec& spec) {
  const ModelSpec full = resolved(spec);
  const ModelDef& def = model_def(full.kind);
  Json json;
  const bool has_heads = !def.heads.empty();
  const std::string_view architecture = has_heads ? head_of(full).architecture : def.architecture;
  json["architectures"] = Json::array({std::string(architecture)});
  if (has_heads) put_head(full, json);
  json["model_type"] = std::string(def.name);
  Json scaling = nullptr, parameters = fixed_rope(def);
  for (const HfKey& key : hf_keys_of(def)) {
    const ModelField& field = model_field(key.field);
    if (!field.is_of(full) || key.key == kLayerTypes.key) continue;
    Json value = std::visit(JsonValue{full, key}, field.member);
    if (!key.gate.empty()) json[std::string(key.gate)] = value != 0;
    if (key.zero_is_null && value == 0) value = nullptr;
    if (is_window_rope(key.key)) continue;  // below
    if (is_rope(key.newer) && !is_window_rope(key.newer))
      parameters[without_object(key.newer)] = value;
    if (const size_t slash = key.key.find('/'); !is_rope(key.key) && slash != key.key.npos) {
      json[std::string(key.key.substr(0, slash))][std::string(key.key.substr(slash + 1))] = value;
      continue;
    }
    if (!is_rope(key.key)) {
      json[std::string(key.key)] = value;
      continue;
    }
    parameters[without_object(key.key)] = value;
    if (full.rope_scaling != RopeScaling::none) scaling[without_object(key.key)] = value;
  }
  if (def.sees_pictures) json[std::string(kTextPart)] = text_part(full);
  if (def.positions == Positions::rotary && !def.sees_pictures) {
    if (find_hf_key(def, "rope_scaling.type") != nullptr) json["rope_scaling"] = scaling;
    json["rope_parameters"] = parameters;
    if (find_hf_key(def, "window_rope_theta") != nullptr) {
      const Json windows = {{"rope_type", "default"}, {"rope_theta", full.window_rope_theta}};
      json["rope_parameters"] = {{"full_attention", parameters}, {"sliding_attention", windows}};
    }
  }
  const bool has_windows = find_hf_key(def, kLayerTypes.field) && !full.window_layers.empty();
  if (has_windows || !full.linear_layers.empty()) json["layer_types"] = layer_types(full);
  if (find_hf_key(def, "no_rope_every") != nullptr) json["no_rope_layers"] = rope_layers(full);
  if (full.mlp_relu && full.classifier_hidden == 0 && find_hf_key(def, "mlp_relu"))
    json[std::string(find_hf_key(def, "gelu")->key)] = std::string(kRelu);
  put_fixed_keys(full, json);
  if (has_heads && has_classes(head_of(full).head)) nest_classifier(json);
  return json.dump(1) + "\n";
}

}  // namespace octet
