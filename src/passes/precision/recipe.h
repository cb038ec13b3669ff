// A recipe turns the differentiated Logical graph into the Typed one: every value gets a dtype, and the recipes of eight
// bits make the quantizers and scales explicit. One file per recipe in this folder; the list is in recipe.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace octet {

struct RecipeOptions {
  Dtype gradient = Dtype::bf16;  // of parameters' gradients, where the recipe computes below f32
};

struct Recipe {
  std::string_view name;
  std::string_view help;
  Dtype compute;  // of parameters and activations
  Graph (*apply)(const Graph& graph, const RecipeOptions& options);
};

std::span<const Recipe> all_recipes();
// Throws Error(invalid_argument) naming the known recipes.
const Recipe& find_recipe(std::string_view name);

// Gives every `real` value a storage type: parameters, activations and gradients `compute`, gradients handed out
// ("grad:...") `gradient`, scalars and statistics (OpDef::statistics) f32. The result is in the Typed phase.
Graph assign_types(const Graph& graph, Dtype compute, Dtype gradient);

}  // namespace octet
