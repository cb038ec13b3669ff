#include "passes/precision/recipe.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"

namespace octet {
namespace {

Graph apply_fp32(const Graph& graph, const RecipeOptions&) { return assign_types(graph, Dtype::f32, Dtype::f32); }
Graph apply_bf16(const Graph& graph, const RecipeOptions& options) {
  return assign_types(graph, Dtype::bf16, options.gradient);
}

constexpr std::array kRecipes = {
    Recipe{"fp32", "everything in f32", Dtype::f32, apply_fp32},
    Recipe{"bf16", "BF16 weights, activations and gradients; statistics, softmax and loss in f32", Dtype::bf16, apply_bf16},
};

}  // namespace

std::span<const Recipe> all_recipes() { return kRecipes; }

const Recipe& find_recipe(std::string_view name) {
  const auto it = std::find_if(kRecipes.begin(), kRecipes.end(), [&](const Recipe& r) { return r.name == name; });
  if (it != kRecipes.end()) return *it;
  std::string known;
  for (const Recipe& recipe : kRecipes) known += fmt::format("{}{}", known.empty() ? "" : ", ", recipe.name);
  throw Error(ErrorCode::invalid_argument, "[recipe] expected one of {}, got '{}'", known, name);
}

Graph assign_types(const Graph& graph, Dtype compute, Dtype gradient) {
  CHECK(graph.phase == Phase::logical);
  Graph typed = graph;
  typed.phase = Phase::typed;
  std::set<ValueId> gradients;
  for (const GraphOutput& output : graph.outputs) {
    if (output.name.rfind("grad:", 0) == 0) gradients.insert(output.value);
  }
  for (size_t v = 0; v < typed.values.size(); ++v) {
    Value& value = typed.values[v];
    if (value.type.dtype != Dtype::real) continue;
    const bool statistic =
        value.producer != kNoNode &&
        ((op_def(graph.nodes[static_cast<size_t>(value.producer)].op).statistics >> value.result_index) & 1) != 0;
    if (statistic || value.type.shape.empty()) {
      value.type.dtype = Dtype::f32;
    } else {
      value.type.dtype = gradients.count(static_cast<ValueId>(v)) > 0 ? gradient : compute;
    }
  }
  return typed;
}

}  // namespace octet
