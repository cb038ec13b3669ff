// Files of `octet formats quantize`: tensors codes [R, C], and scale [grid of scales] or, with
// range expansion, meta [groups]; format, granularity, math and moment in the metadata.
#pragma once

#include <vector>

#include "io/safetensors.h"

namespace octet {

// The values [R, C] of such a file. Throws Error{bad_data} where a tensor is missing, or where the
// metadata and the tensors' types and shapes contradict one another.
std::vector<float> dequantize_file(const SafetensorsReader& file);

}  // namespace octet
