#include "infer/peft_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/ordered_json.h"
#include "text/regex.h"

namespace octet {
namespace {

// Change nothing that a model computes: what wrote the file, how factors began, how training went.
constexpr std::string_view kNeutralPeftKeys[] = {
    "auto_mapping",   "peft_version",  "task_type",         "inference_mode",
    "fan_in_fan_out", "megatron_core", "qalora_group_size", "eva_config",
    "loftq_config",   "corda_config",  "lora_ga_config",    "runtime_config"};
constexpr std::string_view kUsedPeftKeys[] = {"peft_type",         "base_model_name_or_path",
                                              "revision",          "r",
                                              "lora_alpha",        "lora_dropout",
                                              "target_modules",    "exclude_modules",
                                              "modules_to_save",   "layers_to_transform",
                                              "layers_pattern",    "rank_pattern",
                                              "alpha_pattern",     "bias",
                                              "use_rslora",        "use_dora",
                                              "init_lora_weights", "ensure_weight_tying"};
// First values of factors that leave the base as it is; others subtract from it.
constexpr std::string_view kPeftInits[] = {"gaussian", "orthogonal", "eva"};

class PeftConfigReader {
 public:
  PeftConfigReader(const Json& json, const OrderedJson& ordered, std::string path)
      : object_(json, path), json_(json), ordered_(ordered), path_(std::move(path)) {}

  PeftConfig read() const {
    check_keys();
    if (const std::string type = object_.string("peft_type"); type != "LORA")
      refuse("peft_type", "LORA", type);
    PeftConfig config;
    config.base = object_.string_or("base_model_name_or_path", "");
    config.revision = object_.string_or("revision", "");
    read_scales(config);
    read_targets(config);
    const std::string bias = object_.string_or("bias", "none");
    const auto known = enum_from_name<PeftBias>(bias);
    if (!known) refuse("bias", "none, all or lora_only", bias);
    config.bias = *known;
    config.ties_weights = object_.boolean_or("ensure_weight_tying", false);
    check_init();
    return config;
  }

 private:
  [[noreturn]] void refuse(std::string_view key, std::string_view expected,
                           std::string_view got) const {
    throw Error(ErrorCode::bad_data, "[adapter] {}: '{}': expected {}, got {}", path_, key,
                expected, got);
  }

  void check_keys() const {
    for (const auto& [key, value] : json_.items()) {
      const bool is_known = std::ranges::find(kUsedPeftKeys, key) != std::end(kUsedPeftKeys) ||
                            std::ranges::find(kNeutralPeftKeys, key) != std::end(kNeutralPeftKeys);
      if (!is_known && !asks_nothing(value))
        refuse(key, "no such key, null or false", value.dump());
    }
  }

  void read_scales(PeftConfig& config) const {
    config.rslora = object_.boolean_or("use_rslora", false);
    config.dora = object_.boolean_or("use_dora", false);
    config.rank = rank("r", object_.integer_or("r", config.rank));
    config.alpha = alpha("lora_alpha", object_.number_or("lora_alpha", config.alpha));
    config.dropout = object_.number_or("lora_dropout", 0);
    if (!(config.dropout >= 0 && config.dropout < 1))
      refuse("lora_dropout", "a share from 0 to below 1", fmt::to_string(config.dropout));
    for (const auto& [pattern, value] : patterns("rank_pattern")) {
      if (!value.is_number_integer()) refuse("rank_pattern", "integers", value.dump());
      config.ranks.emplace_back(pattern, rank("rank_pattern", value.get<int64_t>()));
    }
    for (const auto& [pattern, value] : patterns("alpha_pattern")) {
      if (!value.is_number()) refuse("alpha_pattern", "numbers", value.dump());
      config.alphas.emplace_back(pattern, alpha("alpha_pattern", value.get<double>()));
    }
  }

  int64_t rank(std::string_view key, int64_t value) const {
    if (value < 1 || value > kMaxLoraRank)
      refuse(key, fmt::format("a rank from 1 to {}", kMaxLoraRank), fmt::to_string(value));
    return value;
  }

  double alpha(std::string_view key, double value) const {
    if (!std::isfinite(value)) refuse(key, "a finite number", fmt::to_string(value));
    return value;
  }

  std::vector<std::pair<std::string, Json>> patterns(const char* key) const {
    std::vector<std::pair<std::string, Json>> result;
    if (!object_.has(key)) return result;
    if (!json_[key].is_object()) refuse(key, "an object", json_[key].dump());
    for (const auto& item : ordered_[key].items())
      result.emplace_back(item.key(), json_[key][item.key()]);
    return result;
  }

  void read_targets(PeftConfig& config) const {
    if (!object_.has("target_modules")) refuse("target_modules", "names or an expression", "none");
    config.targets = modules("target_modules");
    std::string word = config.targets.regex.value_or("");
    for (char& ch : word) ch = ch >= 'A' && ch <= 'Z' ? static_cast<char>(ch - 'A' + 'a') : ch;
    config.all_linear = word == "all-linear";
    config.excluded = modules("exclude_modules");
    config.saved = texts("modules_to_save");
    config.layers_patterns = texts("layers_pattern");
    read_layers(config);
  }

  void read_layers(PeftConfig& config) const {
    const bool has_layers = object_.has("layers_to_transform");
    const Json layers = has_layers ? json_["layers_to_transform"] : Json::array();
    std::vector<int64_t> numbers;
    for (const Json& one : layers.is_array() ? layers : Json::array({layers})) {
      if (!one.is_number_integer()) refuse("layers_to_transform", "integers", one.dump());
      numbers.push_back(one.get<int64_t>());
    }
    if (numbers.empty()) {
      if (config.layers_patterns.empty()) return;
      refuse("layers_pattern", "null without layers_to_transform", json_["layers_pattern"].dump());
    }
    if (config.targets.regex)
      refuse("layers_to_transform", "null where target_modules is an expression", layers.dump());
    config.layers = std::move(numbers);
  }

  PeftModules modules(const char* key) const {
    if (object_.has(key) && json_[key].is_string()) return {.regex = json_[key], .names = {}};
    return {.regex = {}, .names = texts(key)};
  }

  // One text, or a list.
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> result;
    if (!object_.has(key)) return result;
    const Json& value = json_[key];
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
      if (!one.is_string()) refuse(key, "texts", one.dump());
      result.push_back(one);
    }
    return result;
  }

  void check_init() const {
    if (!object_.has("init_lora_weights")) return;
    const Json& init = json_["init_lora_weights"];
    const bool is_known =
        init.is_boolean() ||
        (init.is_string() &&
         std::ranges::find(kPeftInits, init.get<std::string>()) != std::end(kPeftInits));
    if (is_known) return;
    refuse("init_lora_weights",
           "true, false, gaussian, orthogonal or eva, which leave the base as it is (PEFT's "
           "save_pretrained converts others: path_initial_model_for_weight_conversion)",
           init.dump());
  }

  JsonObject object_;
  const Json& json_;
  const OrderedJson& ordered_;
  std::string path_;
};

// Bytes of the match from the text's begin on; nothing where it begins elsewhere.
std::optional<size_t> matched_bytes(const std::string& expression, const std::string& text) {
  std::optional<size_t> result;
  try {
    MatchBudget budget = match_budget(text.size());
    Regex("\\A" + expression).for_each(text, budget, [&](const RegexMatch& match) {
      if (match.begin == 0 && !result) result = match.end;
    });
  } catch (const Error& error) {
    throw Error(ErrorCode::bad_data, "[adapter] {}: {}", kPeftConfig, error.what());
  }
  return result;
}

bool matches_whole(const std::string& expression, const std::string& text) {
  return matched_bytes("(?:" + expression + ")\\z", text).has_value();
}

// True if a path is what the expression says, or ends so behind a point. Of letters, digits, `_`
// and points, as nearly all are, without an engine.
bool ends_with_match(const std::string& expression, const std::string& path) {
  const bool is_plain = std::ranges::all_of(expression, [](char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_' || ch == '.';
  });
  if (!is_plain) return matches_whole("(?:.*\\.)?(?:" + expression + ")", path);
  if (path.size() < expression.size()) return false;
  const size_t first = path.size() - expression.size();
  if (first > 0 && path[first - 1] != '.') return false;
  return std::equal(expression.begin(), expression.end(),
                    path.begin() + static_cast<int64_t>(first),
                    [](char wanted, char got) { return wanted == '.' || wanted == got; });
}

bool is_named_in(const PeftModules& modules, const std::string& path) {
  if (modules.regex) return matches_whole(*modules.regex, path);
  return std::ranges::any_of(modules.names, [&](const std::string& name) {
    return path == name || path.ends_with("." + name);
  });
}

// The number between the last two points of a match: "model.layers.3." is layer 3.
std::optional<int64_t> layer_of_path(const PeftConfig& config, const std::string& path) {
  std::vector<std::string> expressions = {".*?\\.[^.]*\\.\\d+\\."};
  if (!config.layers_patterns.empty()) expressions.clear();
  for (const std::string& pattern : config.layers_patterns)
    expressions.push_back("(?:|.*?\\.)" + pattern + "\\.\\d+\\.");
  for (const std::string& expression : expressions) {
    const auto end = matched_bytes(expression, path);
    if (!end) continue;
    const std::string_view head = std::string_view(path).substr(0, *end - 1);
    const std::string_view digits = head.substr(head.rfind('.') + 1);
    int64_t layer = 0;
    const auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
    if (error == std::errc() && last == digits.data() + digits.size()) return layer;
  }
  return std::nullopt;
}

template <typename T>
T value_of_pattern(const std::vector<std::pair<std::string, T>>& patterns, const std::string& path,
                   T fallback) {
  for (const auto& [pattern, value] : patterns) {
    if (ends_with_match(pattern, path)) return value;
  }
  return fallback;
}

}  // namespace

PeftConfig read_peft_config(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, kPeftConfig);
  const std::string text = files.read_text(path);
  const Json json = parse_json(text, path);
  const OrderedJson ordered = parse_ordered_json(text, path);
  return PeftConfigReader(json, ordered, path).read();
}

bool is_saved_module(std::span<const std::string> saved, const std::string& path) {
  return std::ranges::any_of(saved, [&](const std::string& one) {
    for (std::string_view part = path; !part.empty();) {
      if (part.ends_with(one)) return true;
      const size_t point = part.rfind('.');
      part = part.substr(0, point == part.npos ? 0 : point);
    }
    return false;
  });
}

// True if no adapter may stand there, by modules_to_save: regular expressions, in whole parts.
bool is_excluded_as_saved(const PeftConfig& config, const std::string& path) {
  return std::ranges::any_of(config.saved, [&](const std::string& one) {
    return ends_with_match(one, path) || matches_whole("(?:.*\\.)?" + one + "(?:\\..*)?", path);
  });
}

bool is_targeted(const PeftConfig& config, const PeftModule& module) {
  if (is_named_in(config.excluded, module.path)) return false;
  if (is_excluded_as_saved(config, module.path)) return false;
  if (config.all_linear) return module.is_linear && !module.is_head;
  if (!is_named_in(config.targets, module.path)) return false;
  const auto& names = config.targets.names;
  if (!config.layers || std::ranges::find(names, module.path) != names.end()) return true;
  const auto layer = layer_of_path(config, module.path);
  return layer && std::ranges::find(*config.layers, *layer) != config.layers->end();
}

std::vector<std::string> first_names(const std::string& tensor) {
  std::vector<std::string> names;
  for (const std::string_view mark : {std::string_view(".modules_to_save."), kOriginalModule}) {
    const size_t at = tensor.find(mark);
    if (at == tensor.npos) continue;
    const std::string module = tensor.substr(0, at + 1), rest = tensor.substr(at + mark.size());
    names = {module + rest, module + rest.substr(rest.find('.') + 1)};
  }
  return names;
}

int64_t rank_of(const PeftConfig& config, const std::string& path) {
  return value_of_pattern(config.ranks, path, config.rank);
}

double alpha_of(const PeftConfig& config, const std::string& path) {
  return value_of_pattern(config.alphas, path, config.alpha);
}

}  // namespace octet
