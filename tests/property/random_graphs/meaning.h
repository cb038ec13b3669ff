// Do two graphs mean the same? Outputs are compared on the reference interpreter, gradients with a
// directional difference.
#pragma once

#include <cmath>
#include <random>

#include "backends/cpu/reference/reference.h"
#include "passes/autodiff.h"

namespace octet::random_graphs {

// The largest difference of an output, relative to the output's largest magnitude (at least 1); Inf
// where names, sizes or the places of NaN and Inf differ. Outputs that `expected` does not have are
// left out.
inline double difference(const reference::Tensors& actual, const reference::Tensors& expected) {
  double worst = 0;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end() || found->second.size() != values.size()) return INFINITY;
    double largest = 1;
    for (const double x : values) {
      if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double a = found->second[i], b = values[i];
      if (a == b || (std::isnan(a) && std::isnan(b))) continue;
      const double error = std::fabs(a - b) / largest;
      worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
    }
  }
  return worst;
}

// The slope of "loss" along one random direction over all parameters: by the outputs "grad:...",
// and by differences.
struct Slopes {
  double gradients = 0, differences = 0;
  double error() const { return std::fabs(gradients - differences) / (1 + std::fabs(differences)); }
};

inline Slopes slopes(const Graph& graph, const reference::Tensors& inputs, uint64_t seed) {
  constexpr double kStep = 1e-6;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  reference::Tensors above = inputs, below = inputs;
  const reference::Tensors outputs = reference::interpret(graph, inputs);
  Slopes result;
  for (const GraphInput& input : graph.inputs) {
    const auto gradient = outputs.find(gradient_name(input.name));
    if (gradient == outputs.end()) continue;
    for (size_t i = 0; i < gradient->second.size(); ++i) {
      const double direction = normal(random);
      result.gradients += direction * gradient->second[i];
      above[input.name][i] += kStep * direction;
      below[input.name][i] -= kStep * direction;
    }
  }
  const double up = reference::interpret(graph, above)["loss"][0];
  const double down = reference::interpret(graph, below)["loss"][0];
  result.differences = (up - down) / (2 * kStep);
  return result;
}

}  // namespace octet::random_graphs
