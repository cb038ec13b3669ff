// Users' options of dynamic range expansion: its mathematics, and the granularity of its groups.
#pragma once

#include <string_view>

#include "formats/quantize.h"
#include "math/expansion.h"

namespace octet {

// "exact" or "fast"; Error{invalid_argument} for others.
MathMode math_from_name(std::string_view name);

// Elements per group of the expansion, which runs through the tensor in row-major order. Throws
// Error{invalid_argument} for blocks.
int64_t expansion_group(const Granularity& granularity, const MatrixShape& shape);

}  // namespace octet
