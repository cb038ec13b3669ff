#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "infer/weights.h"

namespace octet {
namespace {

// The smallest magnitude that becomes Inf in a type.
float least_overflow(Dtype dtype) {
  if (dtype == Dtype::fp16) return 65520.0f;
  return dtype == Dtype::bf16 ? 0x1.FFp127f : std::numeric_limits<float>::infinity();
}

// The indices of an element, row-major.
Shape place_of(int64_t element, const Shape& shape) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis])
    place[axis] = element % shape[axis];
  return place;
}

}  // namespace

void check_finite_values(const std::string& path, const TensorDecl& tensor, int64_t first,
                         std::span<const float> values, Dtype dtype) {
  const float limit = least_overflow(dtype);
  const auto is_bad = [limit](float x) { return !(std::abs(x) < limit); };
  uint32_t n_bad = 0;  // a loop that is vectorized
  for (const float x : values) n_bad += is_bad(x) ? 1u : 0u;
  if (n_bad == 0) return;
  const auto at = std::ranges::find_if(values, is_bad);
  const bool is_finite = std::isfinite(*at);
  throw Error(ErrorCode::bad_data,
              "[weights] {}: element {} of '{}' {}: expected {}, got {}; {} reads it as it is",
              path, to_string(place_of(first + (at - values.begin()), tensor.shape)), tensor.name,
              to_string(tensor.shape),
              is_finite ? fmt::format("what {} holds", dtype_name(dtype)) : "a finite weight", *at,
              "--allow-nonfinite (of a run model.allow_nonfinite)");
}

}  // namespace octet
