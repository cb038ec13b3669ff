// RMS of a loaded model's weights, as recipes with propagated scales take it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "infer/weights.h"
#include "nn/model.h"

namespace octet {

// True if the recipe predicts scales, from RecipeOptions::initial_rms.
bool predicts_scales(std::string_view recipe);

// log2 of the RMS of each matrix, by name (what predictions take of norms' weights and of biases is
// as they are initialized); -inf of zeros. Sums in f64 in a fixed order: the same
// bits on any number of threads. Values that are not finite are left out.
std::map<std::string, double> loaded_rms(const WeightReader& weights, const ModelSpec& spec);

}  // namespace octet
