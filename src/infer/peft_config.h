// adapter_config.json of PEFT: which modules of a model have adapters, of which rank and scale.
// Source: LoraConfig of PEFT 0.21. Each key that changes what the model computes is used or refused
// by name; a key that is not known is refused unless it asks for nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "passes/lora.h"

namespace octet {

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

// Patterns that PEFT compares a module's path with: a regular expression that it is, or names that
// it is or ends with.
struct PeftModules {
  std::optional<std::string> regex;
  std::vector<std::string> names;
  bool is_empty() const { return !regex && names.empty(); }
};

enum class PeftBias : uint8_t { none, all, lora_only };
constexpr auto value_names(PeftBias) {
  return name_list("none", "all", "lora_only");
}

struct PeftConfig {
  std::string base, revision;  // base_model_name_or_path; "": none
  bool rslora = false, dora = false;
  int64_t rank = 8;
  double alpha = 8, dropout = 0;
  bool all_linear = false;
  PeftModules targets, excluded;
  std::vector<std::string> saved;  // modules_to_save
  std::optional<std::vector<int64_t>> layers;
  std::vector<std::string> layers_patterns;
  // In the order of the file: the first expression that matches counts.
  std::vector<std::pair<std::string, int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  PeftBias bias = PeftBias::none;
  bool ties_weights = false;  // ensure_weight_tying
};

// Throws Error{bad_data} naming the key.
PeftConfig read_peft_config(const Files& files, const std::string& folder);

// A module as PEFT sees it: its path in transformers' class, and what it is.
struct PeftModule {
  std::string path;
  bool is_linear = true, is_head = false;
};
// True if the path of the module, or of one that it is in, ends with one of modules_to_save.
bool is_saved_module(std::span<const std::string> saved, const std::string& path);
// By target_modules, exclude_modules and layers_to_transform, which a whole path is not asked for.
bool is_targeted(const PeftConfig& config, const PeftModule& module);
// With `bias: all` PEFT writes a saved module's biases again, and those that it had in the base:
// MODULE.modules_to_save[.ADAPTER].PART.bias, MODULE.original_module.PART.bias. Names that
// MODULE.PART.bias may then be; none for other tensors.
inline constexpr std::string_view kOriginalModule = ".original_module.";
std::vector<std::string> first_names(const std::string& tensor);
int64_t rank_of(const PeftConfig& config, const std::string& path);
double alpha_of(const PeftConfig& config, const std::string& path);

}  // namespace octet
