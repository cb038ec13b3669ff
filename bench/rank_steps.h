// Training steps of several ranks, recipe by recipe.
#pragma once

#include "bench/recipe_rounds.h"
#include "comm/group.h"

namespace octet {

// Every rank of `group` calls it, on a back end of its own, and has the same rows; medians:
//   "step NAME"                   tokens/s of all ranks together, by the slowest
//   "step NAME first loss", "step NAME loss", "step NAME |g|"   of the first step and the last
//   "step NAME rank R"            ms of that rank's step
//   "step NAME rank R transfers"  ms that its collectives take, waiting for other ranks included,
//                                 of one step; share: of that time computing goes on beside it
// Throws Error{numerics} where the loss did not fall.
BenchRows bench_rank_steps(const BenchMachine& machine, Group& group, const RecipeRounds& rounds);

}  // namespace octet
