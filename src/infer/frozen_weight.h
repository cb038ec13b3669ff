// A matrix of a frozen base in its 8-bit format (passes/precision/store_frozen.h), made in pieces,
// so that no whole matrix is held in f32: its scales by one pass over the file, its data by
// another.
//
//   scale = amax * f32(1 / amax_target) of the tensor (f32), or of a block of 128 x 128 (BF16)
//   data  = encode(w * f32(1 / scale))
// The bits of quantize() (formats/quantize.h). A file that has the format with one scale keeps its
// own scale, and so its data. Const members may be called from several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/quantize.h"
#include "infer/weights.h"
#include "passes/precision/store_frozen.h"

namespace octet {

class FrozenWeight {
 public:
  // Reads the parameter once, unless the file has its scale. Throws Error{bad_data} naming it where
  // it is not finite.
  FrozenWeight(const WeightReader& base, const std::string& parameter, const Shape& shape,
               FrozenFormat format);

  // A grid of 1 x 1, or of 128 x 128 blocks.
  const std::vector<float>& scales() const { return scales_; }
  // Data of elements [first, first + values.size()).
  void encode(int64_t first, std::span<const float> values, std::span<uint8_t> data) const;
  // What the data of these elements decode to.
  void round(int64_t first, std::span<float> values) const;

 private:
  template <typename F>
  void for_each_run(int64_t first, int64_t n, F&& f) const;

  Quantizer quantizer_;
  MatrixShape shape_, grid_;
  std::vector<float> scales_;
};

}  // namespace octet
