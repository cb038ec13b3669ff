#include "nn/hf_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "nn/list.h"

namespace octet {
namespace {

// Defaults of transformers 5.24 for keys that a model's own reader wants to see.
constexpr std::string_view kTextDefaults = R"({
"llama": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
          "num_hidden_layers": 32, "num_attention_heads": 32},
"mistral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
"qwen2": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32},
"qwen3": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
          "head_dim": 128}})";
constexpr std::string_view kLlavaTower = R"({"model_type": "clip_vision_model",
"intermediate_size": 4096, "hidden_size": 1024, "patch_size": 14, "image_size": 336,
"num_hidden_layers": 24, "num_attention_heads": 16})";
constexpr std::string_view kIdefics3Text = R"({"model_type": "llama", "rms_norm_eps": 1e-5})";
constexpr std::string_view kSiglip = R"({"patch_size": 16, "layer_norm_eps": 1e-6,
"hidden_act": "gelu_pytorch_tanh"})";

// Types whose models compute what another's do, under the same names.
constexpr std::pair<const char*, const char*> kSameTypes[] = {
    {"smolvlm", "idefics3"},
    {"smolvlm_vision", "idefics3_vision"},
};

void take_same_type(Json& object) {
  if (!object.is_object() || !object.contains("model_type")) return;
  for (const auto& [type, as] : kSameTypes) {
    if (object["model_type"] == type) object["model_type"] = as;
  }
}

void put_missing(Json& part, const Json& defaults) {
  for (const auto& [key, value] : defaults.items()) {
    if (!part.contains(key)) part[key] = value;
  }
}

// A vision model with a classifier, whose file has it as an object beside one of a text's model,
// which is not there.
struct Classifier {
  std::string_view type, part, architecture;
};
constexpr Classifier kClassifiers[] = {
    {"clip", "clip_vision_model", "CLIPForImageClassification"},
    {"siglip", "siglip_vision_model", "SiglipForImageClassification"},
};
constexpr std::string_view kOfText[] = {kTextPart, "projection_dim", "logit_scale_init_value",
                                        "initializer_factor"};
// Keys that the whole file says.
constexpr std::string_view kOfFile[] = {
    "architectures", "id2label",   "label2id",    "num_labels",           "problem_type",
    "dtype",         "model_type", "torch_dtype", "transformers_version", "quantization_config"};

bool is_in(std::span<const std::string_view> list, std::string_view key) {
  return std::ranges::find(list, key) != list.end();
}

const Classifier* classifier_of(const Json& config, std::string_view Classifier::*name) {
  const auto at = config.find("model_type");
  if (at == config.end() || !at->is_string()) return nullptr;
  const auto found = std::ranges::find(kClassifiers, at->get<std::string>(), name);
  return found == std::end(kClassifiers) ? nullptr : &*found;
}

// As a vision model alone says it; other classes of the kind stay, and are not known. Nor are keys
// of a vision model beside its object, which transformers does not read.
void flatten_classifier(Json& config) {
  const std::string vision(kVisionPart);
  const Classifier* whole = classifier_of(config, &Classifier::type);
  if (whole == nullptr ||
      config.value("architectures", Json()) != Json::array({std::string(whole->architecture)}))
    return;
  Json part = config.value(vision, Json());
  if (part.is_null()) part = Json::object();
  if (!part.is_object()) return;
  const std::vector<HfKey> keys = hf_keys_of(*find_model(whole->part));
  for (const auto& [key, value] : config.items()) {
    if (key == vision || key == "model_type" || is_in(kOfText, key)) continue;
    const bool is_of_part = std::ranges::count(keys, key, &HfKey::key) > 0;
    const bool is_told = is_of_part && part.value(key, Json()) != value;
    part[is_told ? fmt::format("{} outside of {}", key, vision) : key] = value;
  }
  if (!part.contains("model_type")) part["model_type"] = std::string(whole->part);
  config = std::move(part);
}

bool is_true(const Json& json, const char* key) {
  return json.contains(key) && json[key] == true;
}

}  // namespace

void nest_classifier(Json& config) {
  const Classifier* whole = classifier_of(config, &Classifier::part);
  if (whole == nullptr) return;
  Json part = Json::object(), rest = Json::object();
  for (const auto& [key, value] : config.items()) (is_in(kOfFile, key) ? rest : part)[key] = value;
  part["model_type"] = std::string(whole->part);
  rest["model_type"] = std::string(whole->type);
  rest[std::string(kVisionPart)] = std::move(part);
  config = std::move(rest);
}

void complete_parts(Json& config) {
  if (!config.is_object() || !config.contains("model_type") || !config["model_type"].is_string())
    return;
  take_same_type(config);
  if (config.contains(kVisionPart)) take_same_type(config[std::string(kVisionPart)]);
  flatten_classifier(config);
  if (classifier_of(config, &Classifier::part) != nullptr) config.erase("projection_dim");
  if (!config["model_type"].is_string()) return;
  const ModelDef* def = find_model(config["model_type"].get<std::string>());
  if (def == nullptr || !def->sees_pictures) return;
  const std::string text_key(kTextPart), vision_key(kVisionPart), type_key = "model_type";
  const bool is_llava = def->kind == ModelKind::llava;
  for (const std::string& key : {text_key, vision_key}) {
    if (config.contains(key) && !config[key].is_null()) continue;
    const std::string_view whole = key == vision_key ? (is_llava ? kLlavaTower : "{}")
                                   : is_llava        ? "{}"
                                                     : kIdefics3Text;
    config[key] = parse_own_json(whole);
  }
  Json &text = config[text_key], &vision = config[vision_key];
  if (text.is_object()) {
    if (!text.contains(type_key)) text[type_key] = "llama";
    const Json defaults = parse_own_json(kTextDefaults);
    if (text[type_key].is_string() && defaults.contains(text[type_key].get<std::string>()))
      put_missing(text, defaults[text[type_key].get<std::string>()]);
    if (is_true(text, "tie_word_embeddings") || is_true(config, "tie_word_embeddings"))
      text["tie_word_embeddings"] = config["tie_word_embeddings"] = true;
  }
  if (vision.is_object()) {
    if (!vision.contains(type_key))
      vision[type_key] = is_llava ? "clip_vision_model" : "idefics3_vision";
    if (vision[type_key] == "siglip_vision_model") put_missing(vision, parse_own_json(kSiglip));
  }
}

void put_keys(Json own, Json& config) {
  const Classifier* whole = classifier_of(own, &Classifier::type);
  if (whole != nullptr && classifier_of(config, &Classifier::part) == whole)
    nest_classifier(config);  // it has got a classifier
  for (const std::string_view name : {kTextPart, kVisionPart}) {
    const std::string part(name);
    if (!own.contains(part) || !config.contains(part) || !config[part].is_object()) continue;
    config[part].update(own[part]);
    for (const char* key : {"dtype", "torch_dtype"}) config[part].erase(key);
    own.erase(part);
  }
  config.update(own);
}

bool is_of_other_towers(std::string_view key) {
  return key == "projection_dim" || key == "vocab_size" || key == "vision_use_head" ||
         key == "max_image_size" || key == "size" || key == "model_type";
}

}  // namespace octet
