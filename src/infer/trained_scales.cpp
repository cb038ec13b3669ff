#include "infer/trained_scales.h"

#include "base/named_enum.h"
#include "config/names.h"
#include "infer/loaded_rms.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

LinearOverride linear_override(const RecipeOverride& line) {
  LinearOverride result{.pattern = line.pattern};
  if (!line.recipe.empty()) result.formats = find_recipe(line.recipe).linears;
  for (const auto& [role, format] : line.formats) {
    if (role == kSumsRole) {
      result.sums = enum_from_name<GemmSums>(format);
      continue;
    }
    (role == "x"   ? result.x
     : role == "w" ? result.w
                   : result.dy) = operand_format_from_name(format, role == "dy");
  }
  return result;
}

}  // namespace

std::vector<LinearOverride> linear_overrides(const RecipeConfig& recipe) {
  std::vector<LinearOverride> overrides;
  for (const RecipeOverride& line : recipe.overrides) overrides.push_back(linear_override(line));
  return overrides;
}

std::map<std::string, std::vector<std::string>> trained_sharers(const RunConfig& run,
                                                                const ModelSpec& spec) {
  const Recipe& recipe = find_recipe(run.recipe.base);
  const Scaling scaling = run.recipe.scaling.value_or(recipe.scaling);
  const bool are_measured = scaling == Scaling::current || scaling == Scaling::delayed;
  if (!are_measured || predicts_scales(run.recipe.base)) return {};
  const Graph graph = build_model(spec, {.batch = 1, .seq = 1}, ModelOutputs::outputs).graph;
  const LinearGroups groups(graph, recipe.linears, linear_overrides(run.recipe),
                            run.recipe.block_scale);
  const OperandFormat one_scale{.dtype = Dtype::e4m3};
  std::map<std::string, std::vector<std::string>> sharers;
  for (const LinearGroup& group : groups.all()) {
    if (!group.formats.quantized || group.formats.w != one_scale || group.is_depthwise) continue;
    std::vector<std::string> names;
    for (const ValueId weight : group.weights) {
      if (const GraphInput* input = graph.input_of(weight)) names.push_back(input->name);
    }
    for (const std::string& name : names) sharers[name] = names;
  }
  return sharers;
}

}  // namespace octet
