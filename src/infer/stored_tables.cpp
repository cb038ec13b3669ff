#include "infer/stored_tables.h"

#include <cmath>
#include <map>
#include <vector>

#include "base/error.h"
#include "formats/table.h"
#include "io/model_files.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

double sine_at(int64_t position, int64_t column, int64_t width) {
  const int64_t half = width / 2, i = column % half;
  const double angle =
      static_cast<double>(position) *
      std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(width));
  return column < half ? std::sin(angle) : std::cos(angle);
}

bool holds_sines(const ModelFiles& weights, const std::string& name, int64_t width) {
  constexpr double kBf16 = 0x1p-8;
  const StoredTensor& table = weights.at(name);
  if (table.shape.size() != 2 || table.shape[1] != width || !table.dtype ||
      !is_high_precision(*table.dtype))
    return false;
  const std::vector<float> values = weights.read_values(name);
  for (int64_t i = 0; i < table.shape[0] * width; ++i) {
    const double got = values[static_cast<size_t>(i)];
    if (!(std::abs(got - sine_at(i / width, i % width, width)) <= kBf16)) return false;
  }
  return true;
}

// Their values; of another type the ones that are the same numbers.
bool have_equal_values(const ModelFiles& weights, const std::string& a, const std::string& b) {
  const StoredTensor &of_a = weights.at(a), &of_b = weights.at(b);
  if (of_a.stored == of_b.stored || !of_a.dtype || !of_b.dtype) return weights.are_equal(a, b);
  return of_a.shape == of_b.shape && weights.read_values(a) == weights.read_values(b);
}

}  // namespace

void check_sine_tables(const Files& files, const std::string& folder, const ModelSpec& spec) {
  if (model_def(spec.kind).positions != Positions::sinusoidal || !has_model_files(files, folder))
    return;
  const ModelFiles weights = ModelFiles::open(files, folder);
  for (const std::string& name : weights.names()) {
    if (!name.ends_with(".embed_positions.weight") || holds_sines(weights, name, spec.hidden))
      continue;
    throw Error(ErrorCode::bad_data,
                "[model] {}: '{}': expected the sines and cosines that sinusoidal positions have, "
                "got other numbers",
                weights.path(), name);
  }
}

void check_copies(const Files& files, const std::string& folder, const ModelSpec& spec) {
  if (!has_model_files(files, folder)) return;
  const ModelFiles weights = ModelFiles::open(files, folder);
  std::map<std::string, std::string> stored_name;  // of parameters that files repeat
  const std::vector<std::string> names = weights.names();
  for (const std::string& name : names)
    if (const auto parameter = copied_parameter(spec, name)) stored_name.emplace(*parameter, name);
  if (stored_name.empty()) return;
  for (const std::string& name : names) {
    const auto parameter = parameter_name(spec, name);
    if (parameter && stored_name.contains(*parameter)) stored_name[*parameter] = name;
  }
  for (const std::string& name : names) {
    const auto parameter = copied_parameter(spec, name);
    if (!parameter || have_equal_values(weights, stored_name.at(*parameter), name)) continue;
    throw Error(
        ErrorCode::bad_data,
        "[model] {}: '{}': expected the values of '{}', as one parameter is both, got others",
        weights.path(), name, stored_name.at(*parameter));
  }
}

}  // namespace octet
