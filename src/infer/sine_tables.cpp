#include "infer/sine_tables.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "formats/table.h"
#include "io/model_files.h"

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

}  // namespace octet
