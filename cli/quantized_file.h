// Files of `octet formats quantize`: tensors codes [R, C], and scale [grid of scales] or, with
// range expansion, meta [groups]; format, granularity, math and moment in the metadata.
#pragma once

#include <string>
#include <vector>

#include "formats/quantize.h"
#include "io/safetensors.h"
#include "math/expansion.h"

namespace octet {

// The format with this name; Error{invalid_argument} lists the known ones.
Dtype format_from_name(const std::string& name);

// "exact" or "fast"; Error{invalid_argument} for others.
MathMode math_from_name(const std::string& name);

// Elements per group of the expansion, which runs through the tensor in row-major order. Throws
// Error{invalid_argument} for blocks.
int64_t expansion_group(const Granularity& granularity, const MatrixShape& shape);

// The values [R, C] of such a file. Throws Error{bad_data} where a tensor is missing, or where the
// metadata and the tensors' types and shapes contradict one another.
std::vector<float> dequantize_file(const SafetensorsReader& file);

}  // namespace octet
