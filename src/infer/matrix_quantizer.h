// A matrix in 8 bits, made in pieces, so that no whole matrix is held in f32: its scales by one
// pass over what is read, its data by another. The bits of quantize() (formats/quantize.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/integer.h"
#include "formats/quantize.h"
#include "infer/tensor_streams.h"
#include "infer/weights.h"
#include "io/quantization_config.h"
#include "passes/precision/store_frozen.h"

namespace octet {

// Calls f(scale index, begin, end) for runs of elements under one scale: of n elements of a matrix
// of `cols` columns, counted from `first`, row-major.
template <typename F>
void for_each_scale_run(const BlockShape& block, int64_t cols, int64_t first, int64_t n, F&& f) {
  const int64_t across = ceil_div(cols, block.cols);
  for (int64_t i = 0; i < n;) {
    const int64_t row = (first + i) / cols, col = (first + i) % cols;
    const int64_t end = std::min({n, i + cols - col, i + block.cols - col % block.cols});
    f(static_cast<size_t>(row / block.rows * across + col / block.cols), static_cast<size_t>(i),
      static_cast<size_t>(end));
    i = end;
  }
}

class MatrixQuantizer {
 public:
  // By tensor or block.
  MatrixQuantizer(const Quantizer& quantizer, const MatrixShape& shape);
  // One scale for each of these, whatever the quantizer's granularity.
  MatrixQuantizer(const Quantizer& quantizer, const MatrixShape& shape, const BlockShape& block)
      : quantizer_(quantizer), shape_(shape), block_(block) {}

  // Takes the scales from the elements, each of which read(first, out) gives once. False where one
  // is not finite: there are none then.
  bool measure(const ReadValues& read);
  void set_scales(std::vector<float> scales) { scales_ = std::move(scales); }

  const Quantizer& quantizer() const { return quantizer_; }
  const MatrixShape& shape() const { return shape_; }
  MatrixShape grid() const {
    return {ceil_div(shape_.rows, block_.rows), ceil_div(shape_.cols, block_.cols)};
  }
  const std::vector<float>& scales() const { return scales_; }  // row-major over the grid
  // Data of elements [first, first + values.size()). From several threads at a time, as the next.
  void encode(int64_t first, std::span<const float> values, std::span<uint8_t> data) const;
  // Values that the data of these elements decode to.
  void round(int64_t first, std::span<float> values) const;

 private:
  Quantizer quantizer_;
  MatrixShape shape_;
  BlockShape block_;
  std::vector<float> scales_;
};

// Its data and its scales as two tensors of a file, whichever is written first: the scales are
// taken once, and `rescale` may replace them. Emitting throws Error{bad_data} naming the data where
// an element is not finite.
using ScaleOverride = std::function<void(MatrixQuantizer& quantizer)>;
std::vector<TensorSource> quantized(MatrixQuantizer quantizer, ReadValues read, TensorDecl data,
                                    TensorDecl scales, ScaleOverride rescale = {});

// A matrix of a frozen base in its 8-bit format (passes/precision/store_frozen.h), in a grid of
// 1 x 1 scales, or of 128 x 128 blocks.
//
//   scale = amax * f32(1 / amax_target) of the tensor (f32), or of a block of 128 x 128 (BF16)
//   data  = encode(w * f32(1 / scale))
// A file that has the format with one scale keeps its own scale, and so its data.
class FrozenWeight : public MatrixQuantizer {
 public:
  // Reads the parameter once, unless the file has its scale. Throws Error{bad_data} naming it where
  // it is not finite.
  FrozenWeight(const WeightReader& base, const std::string& parameter, const Shape& shape,
               FrozenFormat format);
};

}  // namespace octet
