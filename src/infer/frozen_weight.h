// A matrix of a frozen base in its 8-bit format (passes/precision/store_frozen.h), in a grid of
// 1 x 1 scales, or of 128 x 128 blocks.
//
//   scale = amax * f32(1 / amax_target) of the tensor (f32), or of a block of 128 x 128 (BF16)
//   data  = encode(w * f32(1 / scale))
// A file that has the format with one scale keeps its own scale, and so its data.
#pragma once

#include <string>

#include "infer/matrix_quantizer.h"
#include "infer/weights.h"
#include "passes/precision/store_frozen.h"

namespace octet {

class FrozenWeight : public MatrixQuantizer {
 public:
  // Reads the parameter once, unless the file has its scale. Throws Error{bad_data} naming it where
  // it is not finite.
  FrozenWeight(const WeightReader& base, const std::string& parameter, const Shape& shape,
               FrozenFormat format);
};

}  // namespace octet
