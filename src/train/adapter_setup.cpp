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

// The parameters of the modules that a pattern of lora.save names. A tied head is the embedding.
std::vector<std::string> saved_by(const std::string& pattern, const ModelSpec& spec) {
  const bool names_head =
      spec.tied && names_module(pattern, std::string(model_def(spec.kind).head));
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  std::vector<std::string> names;
  for (const ParameterSpec& p : parameters) {
    const bool is_tied_head = names_head && p.name == parameters.front().name;
    if (is_tied_head || names_module(pattern, p.name)) names.push_back(p.name);
  }
  return names;
}

// All of these, behind the parameters of a new head.
void add_saved(const RunConfig& config, const ModelSpec& spec, std::vector<std::string>& head) {
  for (const std::string& pattern : config.lora.save) {
    const std::vector<std::string> names = saved_by(pattern, spec);
    for (const std::string& name : names) {
      if (std::ranges::find(head, name) == head.end()) head.push_back(name);
    }
    if (!names.empty()) continue;
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

// A module that lora.save names may keep a part of it frozen, but not all.
void expect_trained(const RunConfig& config, const ModelSpec& spec, const LoraOptions& options) {
  for (const std::string& pattern : config.lora.save) {
    if (!std::ranges::all_of(saved_by(pattern, spec), [&](const std::string& name) {
          return is_kept_frozen(options, name);
        }))
      continue;
    throw Error(ErrorCode::invalid_argument,
                "lora.save: expected modules of which train.freeze [{}] leaves something to train, "
                "got '{}'",
                fmt::join(config.train.freeze, ", "), pattern);
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
  expect_trained(config, spec, options);
  std::erase_if(options.head,
                [&](const std::string& name) { return is_kept_frozen(options, name); });
  if (!adapters_of(spec, options).empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "train.freeze: expected patterns that leave an adapter to train, got [{}]",
              fmt::join(config.train.freeze, ", "));
}

// A rank of linears without adapters would say nothing.
void expect_ranks_of_adapters(const ModelSpec& spec, const LoraOptions& options) {
  if (options.ranks.empty()) return;
  const std::vector<LoraAdapter> adapters = adapters_of(spec, options);
  for (const std::string& text : options.ranks) {
    const std::string pattern = lora_rank_from_text(text).value().pattern;
    const auto named = adapters_of(spec, {.rank = 1, .targets = {pattern}});
    if (std::ranges::any_of(named, [&](const LoraAdapter& one) {
          return std::ranges::count(adapters, one.module, &LoraAdapter::module) > 0;
        }))
      continue;
    throw Error(ErrorCode::invalid_argument,
                "lora.ranks: expected patterns of linears that have an adapter (lora.targets [{}], "
                "train.freeze), got '{}'",
                fmt::join(options.targets, ", "), text);
  }
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
  if (options.rank > 0) expect_ranks_of_adapters(spec, options);
  return options;
}

}  // namespace octet
