// Options of a run's adapters, as a configuration means them.
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "infer/adapter_note.h"
#include "nn/head_parameters.h"
#include "passes/lora.h"
#include "passes/precision/policy.h"
#include "train/run_setup.h"

namespace octet {
namespace {

bool names_module(const std::string& pattern, const std::string& parameter) {
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  return matches_pattern(pattern, module) ||
         matches_pattern(pattern, module.substr(module.rfind('.') + 1));
}

// The parameters of the modules that lora.save names, behind those of a new head. A tied head is
// the embedding.
void add_saved(const RunConfig& config, const ModelSpec& spec, std::vector<std::string>& head) {
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  for (const std::string& pattern : config.lora.save) {
    const bool names_head =
        spec.tied && names_module(pattern, std::string(model_def(spec.kind).head));
    bool matches = false;
    for (const ParameterSpec& p : parameters) {
      const bool is_tied_head = names_head && p.name == parameters.front().name;
      if (!is_tied_head && !names_module(pattern, p.name)) continue;
      matches = true;
      if (std::ranges::find(head, p.name) == head.end()) head.push_back(p.name);
    }
    if (matches) continue;
    throw Error(ErrorCode::invalid_argument,
                "lora.save: expected patterns of the model's modules, got '{}', which matches none",
                pattern);
  }
}

// Modules that an adapter trains whole have no adapter.
void expect_apart(const LoraOptions& options, const ModelSpec& spec) {
  if (options.head.empty()) return;
  for (const LoraAdapter& adapter : adapters_of(spec, options)) {
    if (std::ranges::find(options.head, adapter.weight()) == options.head.end()) continue;
    throw Error(ErrorCode::invalid_argument,
                "lora.save: expected modules that lora.targets does not name, got '{}'",
                adapter.module);
  }
}

// Parameters of train.freeze have no adapter, and of a head or a saved module are not trained.
void take_frozen(const RunConfig& config, const ModelSpec& spec, LoraOptions& options) {
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  for (const std::string& pattern : config.train.freeze) {
    if (std::ranges::any_of(parameters, [&](const ParameterSpec& parameter) {
          return matches_pattern(pattern, parameter.name);
        }))
      continue;
    throw Error(
        ErrorCode::invalid_argument,
        "train.freeze: expected patterns of the model's parameters, got '{}', which matches "
        "none (adapters' factors have no names here)",
        pattern);
  }
  options.freeze = config.train.freeze;
  std::erase_if(options.head,
                [&](const std::string& name) { return is_kept_frozen(options, name); });
  if (!adapters_of(spec, options).empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "train.freeze: expected patterns that leave an adapter to train, got [{}]",
              fmt::join(config.train.freeze, ", "));
}

}  // namespace

LoraOptions lora_options(const RunConfig& config, const ModelSpec& spec) {
  LoraOptions options = config.lora;
  if (options.rank > 0 && model_def(spec.kind).is_convolutional) {
    throw Error(ErrorCode::invalid_argument, "lora.rank: expected 0 for kind {}, got {}",
                model_def(spec.kind).name, options.rank);
  }
  if (options.rank > 0 && config.model.head != ModelHead::text)
    options.head = head_parameters(spec);
  if (options.rank > 0 && !config.lora.save.empty()) {
    add_saved(config, spec, options.head);
    expect_apart(options, spec);
  }
  if (options.rank > 0 && !config.train.freeze.empty()) take_frozen(config, spec, options);
  return options;
}

}  // namespace octet
