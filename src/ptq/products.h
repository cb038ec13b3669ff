// The products that calibration is made of, as plans on the back end: how far a quantized linear's
// output is from what it was, and the Hessian of its inputs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "ptq/walk.h"

namespace octet {

// Sizes of y = x w^T: x [rows, n_in], w [n_out, n_in].
struct LinearShape {
  int64_t rows = 0, n_in = 0, n_out = 0;
  auto operator<=>(const LinearShape&) const = default;
};

// Sums of squares over y, in double; their roots are f32.
class OutputError {
 public:
  // `data`: the dtype of quantized x and w: f32, or one that GEMMs read, which are then exact
  // products of quantized data.
  OutputError(const LinearShape& shape, Dtype data, Backend& backend);

  // What it was.
  void set_exact(std::span<const float> x, std::span<const float> w);
  double signal() const { return signal_; }  // sum of y^2
  // What is to be measured: dequantized with dtype f32, else data and the product of the scales.
  void set_x(std::span<const std::byte> x) { error_.write("q_x", x); }
  void set_w(std::span<const std::byte> w) { error_.write("q_w", w); }
  double measure(float scale = 1);  // sum of (y - y')^2

 private:
  LinearShape shape_;
  SmallPlan exact_, error_;
  double signal_ = 0;
};

// Sum over rows of x^T x, [n_in, n_in], f32.
class Gram {
 public:
  Gram(int64_t rows, int64_t n_in, Backend& backend);
  void add(std::span<const float> x);  // rows of it
  const std::vector<double>& sum() const { return sum_; }

 private:
  int64_t n_in_;
  SmallPlan plan_;
  std::vector<float> part_;
  std::vector<double> sum_;
};

}  // namespace octet
