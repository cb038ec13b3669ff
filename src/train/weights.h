// Weights on their way into a program's memory: f32 masters, as each slot keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "infer/weights.h"
#include "nn/model.h"
#include "runtime/executor.h"

namespace octet {

// The first values of a parameter: ones, zeros, or normal numbers keyed by its name and the run's
// seed, so that they depend on nothing else.
std::vector<float> initial_values(const ParameterSpec& parameter, uint32_t seed);

// Writes f32 values, elements `first` on of a parameter, as master weights:
//   f32 slot                            the values
//   bf16 slot, i16 "master:<name>"      split_master (math/adamw.h)
//   bf16 slot, f32 "master:<name>"      rounded to nearest even, and the values
//   bf16 slot alone                     rounded to nearest even
//   f16 "master:<name>"                 divided by the scale of optim/optimizer.h; values must be
//   whole
void write_master(Arenas& arenas, const Layout& layout, const std::string& parameter,
                  std::span<const float> values, int64_t first = 0);

// Zeroes all states and writes values(parameter) for every parameter; calls run on several threads.
using ParameterValues = std::function<std::vector<float>(const ParameterSpec&)>;
void write_weights(Arenas& arenas, const Layout& layout,
                   const std::vector<ParameterSpec>& parameters, const ParameterValues& values);

// The same with the weights of a model's files, in pieces.
void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights);

// The same with the parameters' initial_values, which the device makes where the catalogue can.
void init_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, uint32_t seed,
                  Catalogue& catalogue);

}  // namespace octet
