#include "infer/loaded_rms.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "base/thread_pool.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

constexpr int64_t kRmsPiece = 512 << 10;  // elements

double log2_rms_of(const WeightReader& weights, const ParameterSpec& parameter) {
  const int64_t n = n_elems(parameter.shape);
  std::vector<float> values;
  double squares = 0;
  int64_t n_finite = 0;
  for (int64_t first = 0; first < n; first += kRmsPiece) {
    values.resize(static_cast<size_t>(std::min(kRmsPiece, n - first)));
    weights.read(parameter.name, first, values);
    for (const float x : values) {
      if (!std::isfinite(x)) continue;
      squares += static_cast<double>(x) * static_cast<double>(x);
      ++n_finite;
    }
  }
  if (squares == 0) return -std::numeric_limits<double>::infinity();
  return 0.5 * std::log2(squares / static_cast<double>(n_finite));
}

}  // namespace

bool predicts_scales(std::string_view recipe) {
  return !find_recipe(recipe).scales_loss;
}

std::map<std::string, double> loaded_rms(const WeightReader& weights, const ModelSpec& spec) {
  std::vector<ParameterSpec> parameters = model_parameters(spec);
  std::erase_if(parameters, [&](const ParameterSpec& p) {
    return p.shape.size() < 2 || weights.new_parameters().contains(p.name);
  });
  std::vector<double> rms(parameters.size());
  ThreadPool pool;
  pool.run(std::ssize(parameters), [&](int64_t i, int) {
    rms[static_cast<size_t>(i)] = log2_rms_of(weights, parameters[static_cast<size_t>(i)]);
  });
  std::map<std::string, double> result;
  for (size_t i = 0; i < parameters.size(); ++i) result.emplace(parameters[i].name, rms[i]);
  return result;
}

}  // namespace octet
