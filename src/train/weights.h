// Weights on their way into a program's memory, as each slot keeps them (infer/stored_weights.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/stored_weights.h"
#include "nn/model.h"
#include "runtime/executor.h"

namespace octet {

// The first values of a parameter: ones, zeros, or normal numbers keyed by its name and the run's
// seed, so that they depend on nothing else.
std::vector<float> initial_values(const ParameterSpec& parameter, uint32_t seed);

// Zeroes all states and writes values(parameter) for every parameter; calls run on several threads.
using ParameterValues = std::function<std::vector<float>(const ParameterSpec&)>;
void write_weights(Arenas& arenas, const Layout& layout,
                   const std::vector<ParameterSpec>& parameters, const ParameterValues& values);

// The same with the weights of a model's files, in pieces, and initial_values of those that it
// lacks (WeightReader::new_parameters).
struct FirstWeights {
  uint32_t seed = 1;                                // of initial_values
  FrozenFormat format = FrozenFormat::as_computed;  // of the matrices of a base that is frozen
};
void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights,
                  const FirstWeights& how);

// The same with the parameters' initial_values, which the device makes where the catalogue can.
void init_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, uint32_t seed,
                  Catalogue& catalogue);

}  // namespace octet
