#include "cli/eval_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "config/load.h"
#include "train/eval_scales.h"
#include "train/run_setup.h"

namespace octet {
namespace {

// A key of --set, and what it changes.
struct Key {
  std::string_view name;
  void (*take)(RecipeOptions& to, const RecipeOptions& set);
};

constexpr Key kKeys[] = {
    {"recipe.override", [](auto& to, const auto& set) { to.overrides = set.overrides; }},
    {"recipe.scaling", [](auto& to, const auto& set) { to.scaling = set.scaling; }},
    {"recipe.compute", [](auto& to, const auto& set) { to.compute = set.compute; }},
    {"recipe.activations", [](auto& to, const auto& set) { to.activations = set.activations; }},
    {"recipe.activation_group",
     [](auto& to, const auto& set) { to.activation_group = set.activation_group; }},
    {"recipe.saved_attention",
     [](auto& to, const auto& set) { to.saved_attention = set.saved_attention; }},
    {"recipe.scale_rounding",
     [](auto& to, const auto& set) { to.scale_rounding = set.scale_rounding; }},
    {"recipe.activation_scale",
     [](auto& to, const auto& set) { to.quantizes_linear_outputs = set.quantizes_linear_outputs; }},
    {"recipe.block_scale", [](auto& to, const auto& set) { to.block_scale = set.block_scale; }},
    {"recipe.accumulation", [](auto& to, const auto& set) { to.accumulation = set.accumulation; }},
    {"recipe.mx_scale", [](auto& to, const auto& set) { to.mx_rule = set.mx_rule; }},
    {"recipe.edge_scales", [](auto& to, const auto& set) { to.edge_scales = set.edge_scales; }},
    {"recipe.tf32", [](auto& to, const auto& set) { to.tf32 = set.tf32; }},
    {"recipe.forward_reads",
     [](auto& to, const auto& set) { to.forward_reads = set.forward_reads; }}};

// "recipe.override.PATTERN=.." adds a line.
bool adds_line(std::string_view set) {
  return set.starts_with("recipe.override.");
}

const Key& key_of(std::string_view set) {
  const auto* const found = std::ranges::find_if(kKeys, [&](const Key& key) {
    return set.starts_with(key.name) && set.size() > key.name.size() &&
           (set[key.name.size()] == '=' || set[key.name.size()] == '.');
  });
  if (found != std::end(kKeys)) return *found;
  std::vector<std::string_view> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  throw Error(ErrorCode::invalid_argument, "--set: expected one of {} with eval, got {}",
              fmt::join(names, ", "), set);
}

}  // namespace

ModelSource source_with_recipe(const ModelSource& source, const std::string& recipe,
                               const std::vector<std::string>& sets) {
  ModelSource result = source;
  result.recipe = recipe;
  RecipeOptions& options = result.recipe_options = forward_options(source, recipe);
  for (const std::string& set : sets) key_of(set);
  if (sets.empty()) return result;
  const RecipeOptions all =
      recipe_options(parse_config("recipe: " + recipe + "\n", "--set", sets).config);
  const std::vector<LinearOverride> of_run = options.overrides;
  for (const std::string& set : sets) key_of(set).take(options, all);
  const auto replaces = [](std::string_view set) { return set.starts_with("recipe.override="); };
  if (std::ranges::any_of(sets, adds_line) && std::ranges::none_of(sets, replaces))
    options.overrides.insert(options.overrides.begin(), of_run.begin(), of_run.end());
  return result;
}

}  // namespace octet
