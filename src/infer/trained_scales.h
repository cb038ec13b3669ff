// How a run's forward GEMMs read the weights of its linears, where that is E4M3 with one scale for
// each group of linears that read the same input: what an export in such a format has the bytes of.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "nn/model.h"
#include "passes/precision/policy.h"

namespace octet {

// The overrides of a recipe as passes take them.
std::vector<LinearOverride> linear_overrides(const RecipeConfig& recipe);

// By parameter, those of which the maximum makes its scale, itself among them: q, k and v, or gate
// and up. None where scales are powers of two, or are not made of the weights of the step
// (recipe.scaling; recipes that predict scales).
std::map<std::string, std::vector<std::string>> trained_sharers(const RunConfig& run,
                                                                const ModelSpec& spec);

}  // namespace octet
