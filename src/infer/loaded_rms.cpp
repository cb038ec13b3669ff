#include "infer/loaded_rms.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "base/thread_pool.h"
#include "infer/tensor_streams.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

double log2_rms_of(const WeightReader& weights, const ParameterSpec& parameter) {
  double squares = 0;
  int64_t n_finite = 0;
  const auto read = [&](int64_t first, std::span<float> out) {
    weights.read(parameter.name, first, out);
  };
  stream_values(n_elems(parameter.shape), read, [&](int64_t, std::span<const float> values) {
    for (const float x : values) {
      if (!std::isfinite(x)) continue;
      squares += static_cast<double>(x) * static_cast<double>(x);
      ++n_finite;
    }
  });
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
