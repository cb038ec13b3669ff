#include "math/expansion_options.h"

#include <algorithm>

#include "base/error.h"

namespace octet {

MathMode math_from_name(std::string_view name) {
  if (name == "exact") return MathMode::exact;
  if (name == "fast") return MathMode::fast;
  throw Error(ErrorCode::invalid_argument, "[formats] expected math exact or fast, got {}", name);
}

int64_t expansion_group(const Granularity& granularity, const MatrixShape& shape) {
  switch (granularity.kind) {
    case Granularity::Kind::tensor:
      return std::max<int64_t>(shape.n_elems(), 1);
    case Granularity::Kind::row:
      return std::max<int64_t>(shape.cols, 1);
    case Granularity::Kind::group:
      return granularity.size;
    default:
      break;
  }
  throw Error(ErrorCode::invalid_argument,
              "[formats] --expand: expected granularity tensor, row or 1xG, got {}",
              granularity_name(granularity));
}

}  // namespace octet
