// A recipe turns the differentiated Logical graph into the Typed one: every value gets a dtype, and
// the recipes of eight bits make the quantizers and scales explicit. One file per recipe in this
// folder; the list is in recipe.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "passes/memory/recompute.h"
#include "passes/precision/policy.h"

namespace octet {

struct RecipeOptions {
  Dtype gradient = Dtype::bf16;  // of parameters' gradients, where the recipe computes below f32
  std::vector<LinearOverride> overrides = {};
  Scaling scaling = Scaling::current;
};

struct Recipe {
  std::string_view name;
  std::string_view help;
  Dtype compute;           // of parameters and activations
  LinearFormats linears;   // of the GEMMs inside the layers
  Recompute recompute;     // what the recipe computes again unless the run says otherwise
  std::string_view state;  // optimizer states unless the run says otherwise
  Graph (*apply)(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);
};

std::span<const Recipe* const> all_recipes();
// Throws Error(invalid_argument) naming the known recipes.
const Recipe& find_recipe(std::string_view name);

// One line per linear of the graph: its name and the formats that policy and overrides give it.
std::string resolved_table(const Recipe& recipe, const Graph& graph, const RecipeOptions& options);

// Gives every `real` value a storage type: parameters, activations and gradients `compute`,
// gradients handed out
// ("grad:...") `gradient`, scalars and statistics (OpDef::statistics) f32. The result is in the
// Typed phase.
Graph assign_types(const Graph& graph, Dtype compute, Dtype gradient);

// Results that only quantizers read become f32: amax and codes are taken before any narrow store.
Graph widen_quantizer_inputs(const Graph& graph);

}  // namespace octet
