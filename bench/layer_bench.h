// One decoder layer inside training steps, recipe by recipe.
#pragma once

#include "bench/recipe_rounds.h"

namespace octet {

// Layer 0, four rows a recipe: "layer NAME forward", "layer NAME backward" and, of both, "layer
// NAME", in ms with their floors and the last with its ratio to bf16; "layer NAME kept": MiB that
// its backward keeps, its own input included, and how many times as small as bf16's.
BenchRows bench_layers(const BenchMachine& machine, const RecipeRounds& rounds,
                       const Ceilings& ceilings);

}  // namespace octet
