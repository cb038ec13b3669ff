// Quantized weights and activations on the host, bit for bit as they are stored and as a plan
// computes them, and how far they are from what they were.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "formats/quantize.h"
#include "infer/fake_quantize_inputs.h"
#include "io/quantization_config.h"

namespace octet {

// A linear's weight is [out, in] here, whichever way it is stored.
struct WeightQuantizer {
  Dtype dtype = Dtype::e4m3;
  BlockShape block = {};            // that a scale covers; extents beyond the matrix are its own
  bool power = false;               // scales are powers of two
  Dtype scale_type = Dtype::f32;    // f32, or e8m0 with `power`
  float target = 448;               // amax becomes this
  std::optional<float> scale = {};  // fixed
};

struct QuantizedWeight {
  Dtype dtype = Dtype::e4m3;
  MatrixShape shape = {};
  BlockShape block = {};  // clipped to the shape
  Dtype scale_type = Dtype::f32;
  std::vector<uint8_t> data = {};  // as shape
  std::vector<float> scales = {};  // row-major over the blocks
  MatrixShape grid() const;        // of scales
};

// [cols, rows] of a matrix of this shape.
template <typename T>
std::vector<T> transposed(const std::vector<T>& matrix, const MatrixShape& shape) {
  std::vector<T> result(matrix.size());
  for (int64_t r = 0; r < shape.rows; ++r) {
    for (int64_t c = 0; c < shape.cols; ++c) {
      result[static_cast<size_t>(c * shape.rows + r)] =
          matrix[static_cast<size_t>(r * shape.cols + c)];
    }
  }
  return result;
}

// 10 log10(signal / noise), within +-kMostDecibels: without noise kMostDecibels.
inline constexpr double kMostDecibels = 999;
double decibels(double signal, double noise);

// The effect of eight bits on a tensor.
struct QuantizationError {
  double mse = 0, signal = 0;       // means of (x - y)^2 and x^2
  double clipped = 0, flushed = 0;  // shares of elements: beyond the largest; not 0 to 0
  double snr_db() const;
};

float scale_of(const WeightQuantizer& quantizer, float amax);
QuantizedWeight quantize_weight(const WeightQuantizer& quantizer, const MatrixShape& shape,
                                std::span<const float> w, ThreadPool& pool);
std::vector<float> dequantized(const QuantizedWeight& weight);

// Rows of `cols` elements, as fake_quantize_inputs has them.
std::vector<float> simulated(const ActivationQuantizer& quantizer, std::span<const float> x,
                             int64_t cols, ThreadPool& pool);
// w - dequantized(weight), of a weight with one scale.
std::vector<float> difference(std::span<const float> w, const QuantizedWeight& weight,
                              ThreadPool& pool);

// `limit`: the largest magnitude that is not clipped, for each element of x.
QuantizationError error_of(std::span<const float> x, std::span<const float> y);
void add_clipping(Dtype dtype, float scale, std::span<const float> x, QuantizationError& error);

// The error of batches together, each as long as it is.
class ErrorSum {
 public:
  void add(const QuantizationError& error, int64_t n_elems);
  QuantizationError mean() const;

 private:
  QuantizationError sum_ = {};
  double n_elems_ = 0;
};

}  // namespace octet
