#include "io/modelopt_config.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace octet {
namespace {

constexpr const char* kModelOptKey = "quantization_config";
constexpr const char* kModelOptFile = "hf_quant_config.json";
// Keys that tell what wrote the folder; modules, which are what their tensors are; and the cache,
// which is not quantized here.
constexpr std::string_view kPassedOver[] = {
    "quant_method",    "quant_algo",          "producer",     "ignore", "exclude_modules",
    "kv_cache_scheme", "kv_cache_quant_algo", "quant_library"};

[[noreturn]] void bad_key(const std::string& where, const std::string& key,
                          const std::string& expected, const std::string& got) {
  throw Error(ErrorCode::bad_data,
              "[config.json] {}: 'quantization_config.{}': expected {}, got {}", where, key,
              expected, got);
}

// Arguments of newer files: each group is of 8-bit floats with fixed scales.
void check_arguments(const Json& arguments, const std::string& where, const std::string& key) {
  const std::pair<const char*, Json> expected[] = {
      {"num_bits", 8}, {"type", "float"}, {"dynamic", false}};
  for (const auto& [name, value] : arguments.items()) {
    const auto known =
        std::ranges::find(expected, name, [](const auto& one) { return std::string(one.first); });
    if (known == std::end(expected)) {
      if (!asks_nothing(value))
        bad_key(where, fmt::format("{}.{}", key, name), "no such key", value.dump());
    } else if (value != known->second) {
      bad_key(where, fmt::format("{}.{}", key, name), known->second.dump(), value.dump());
    }
  }
}

void check_groups(const Json& groups, const std::string& where) {
  if (!groups.is_object()) bad_key(where, "config_groups", "an object", groups.type_name());
  for (const auto& [name, group] : groups.items()) {
    const std::string prefix = "config_groups." + name;
    if (!group.is_object()) bad_key(where, prefix, "an object", group.type_name());
    for (const auto& [key, value] : group.items()) {
      const bool has_arguments = key == "weights" || key == "input_activations";
      if (has_arguments && value.is_object()) {
        check_arguments(value, where, fmt::format("{}.{}", prefix, key));
      } else if (key != "targets" && !asks_nothing(value)) {
        bad_key(where, fmt::format("{}.{}", prefix, key), "no such key", value.dump());
      }
    }
  }
}

}  // namespace

Json modelopt_as_fp8(Json root, const std::string& where) {
  if (!root.is_object() || !root.contains(kModelOptKey) || !root[kModelOptKey].is_object())
    return root;
  const Json& config = root[kModelOptKey];
  if (config.value("quant_method", Json()) != "modelopt") return root;
  const Json algorithm = config.value("quant_algo", Json());
  if (algorithm != "FP8") bad_key(where, "quant_algo", "FP8", algorithm.dump());
  for (const auto& [key, value] : config.items()) {
    if (key == "config_groups") {
      check_groups(value, where);
    } else if (std::ranges::find(kPassedOver, key) == std::end(kPassedOver) &&
               !asks_nothing(value)) {
      bad_key(where, key, "no such key", value.is_structured() ? value.type_name() : value.dump());
    }
  }
  root[kModelOptKey] = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "static"}};
  return root;
}

std::optional<Json> read_modelopt_config(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kModelOptFile);
  if (!files.exists(path)) return std::nullopt;
  Json json = parse_json(files.read_text(path), path);
  if (!json.is_object() || !json.contains("quantization") || !json["quantization"].is_object())
    throw Error(ErrorCode::bad_data,
                "[config.json] {}: expected an object 'quantization', got none", path);
  Json config = json["quantization"];
  config["quant_method"] = "modelopt";
  return config;
}

std::string config_with_modelopt(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  std::string text = files.read_text(path);
  const auto modelopt = read_modelopt_config(files, folder);
  if (!modelopt) return text;
  Json root = parse_json(text, path);
  const bool has_own =
      root.is_object() && root.contains(kModelOptKey) && !root[kModelOptKey].is_null();
  if (!root.is_object() || has_own) return text;
  root[kModelOptKey] = *modelopt;
  return root.dump();
}

}  // namespace octet
