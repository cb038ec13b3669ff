// The products that calibration is made of, as plans on the back end: how far a quantized linear's
// output is from what it was, and the Hessian of its inputs. Rows come in batches of at most
// LinearShape::rows.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
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
  // q_w: the dequantized weight.
  OutputError(const LinearShape& shape, std::span<const float> w, std::span<const float> q_w,
              Backend& backend);

  void add(std::span<const float> x, std::span<const float> q_x);  // rows, and as dequantized
  double signal() const { return signal_; }                        // sum of y^2
  double error() const { return error_; }                          // sum of (y - y')^2

 private:
  LinearShape shape_;
  SmallPlan plan_;
  double signal_ = 0, error_ = 0;
};

// The error of one quantized x with any number of quantized weights, without multiplying all rows
// by each of them: with R = (x - q_x) w^T and D = w - q_w
//   |x w^T - q_x q_w^T|^2 = |R + q_x D^T|^2 = |R|^2 + 2 <D, R^T q_x> + <D, D q_x^T q_x>
// No term is larger than the error, so that nothing cancels. GEMMs in f32, sums over rows of
// batches, and of the products with D, in double.
class PairErrors {
 public:
  PairErrors(const LinearShape& shape, std::span<const float> w, Backend& backend);

  void clear();                                                    // another quantized x follows
  void add(std::span<const float> x, std::span<const float> q_x);  // rows, and as dequantized
  double error(std::span<const float> d);                          // sum of (y - y')^2

 private:
  LinearShape shape_;
  ThreadPool& pool_;
  SmallPlan rows_, pair_;
  std::vector<float> part_;
  double residual_ = 0;
  std::vector<double> cross_, gram_;  // R^T q_x [n_out, n_in], q_x^T q_x [n_in, n_in]
  bool is_gram_written_ = false;
};

// Sum over rows of x^T x, [n_in, n_in], f32.
class Gram {
 public:
  Gram(int64_t rows, int64_t n_in, Backend& backend);
  void add(std::span<const float> x);  // rows of it
  const std::vector<double>& sum() const { return sum_; }

 private:
  int64_t rows_, n_in_;
  SmallPlan plan_;
  std::vector<float> part_;
  std::vector<double> sum_;
};

}  // namespace octet
