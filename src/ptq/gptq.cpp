#include "ptq/gptq.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>

#include "base/error.h"
#include "base/integer.h"

namespace octet {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
constexpr int64_t kTileRows = 32;

// The upper factor of the inverse; `dead` are inputs that are always 0.
Matrix inverse_factor(const InputGram& gram, int64_t n, double damping, std::vector<bool>& dead) {
  Matrix h(n, n);
  double trace = 0;
  const double per_row = 2.0 / static_cast<double>(std::max<int64_t>(gram.n_rows, 1));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      h(i, j) = static_cast<float>(gram.sum[static_cast<size_t>(i * n + j)] * per_row);
    }
    dead.push_back(h(i, i) == 0);
    if (dead.back()) h(i, i) = 1;
    trace += static_cast<double>(h(i, i));
  }
  // A factorization passes over NaN, and succeeds.
  if (!h.allFinite()) {
    throw Error(ErrorCode::numerics,
                "[gptq] expected a Hessian that f32 holds, got Inf: inputs are too large");
  }
  const auto added = static_cast<float>(damping * trace / static_cast<double>(n));
  h.diagonal().array() += added;
  const Eigen::LLT<Matrix> factor(h);
  const Matrix inverse = factor.solve(Matrix::Identity(n, n));
  const Eigen::LLT<Matrix, Eigen::Upper> upper(inverse);
  const bool is_good = factor.info() == Eigen::Success && upper.info() == Eigen::Success;
  if (!is_good || !inverse.allFinite()) {
    throw Error(ErrorCode::numerics,
                "[gptq] expected a Hessian that is positive definite, got one that is not: more "
                "calibration text or more --damping");
  }
  return upper.matrixU();
}

class Rows {
 public:
  Rows(const WeightQuantizer& quantizer, const Matrix& upper, QuantizedWeight& result)
      : quantizer_(quantizer), upper_(upper), result_(result) {}

  // Rows [first, first + w.rows()), changed as they are quantized.
  void quantize(Matrix& w, int64_t first, int64_t block) const {
    const int64_t n = w.cols();
    Matrix errors(w.rows(), block);
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t width = std::min(block, n - begin);
      for (int64_t c = begin; c < begin + width; ++c) {
        if (c % result_.block.cols == 0) choose_scales(w, first, c);
        column(w, first, c, begin + width, errors.col(c - begin));
      }
      const int64_t rest = n - begin - width;
      if (rest > 0) {
        w.rightCols(rest).noalias() -=
            errors.leftCols(width) * upper_.block(begin, begin + width, width, rest);
      }
    }
  }

 private:
  float& scale_at(int64_t row, int64_t col) const {
    const int64_t at = row / result_.block.rows * result_.grid().cols + col / result_.block.cols;
    return result_.scales[static_cast<size_t>(at)];
  }

  // One scale for the matrix stands already.
  void choose_scales(const Matrix& w, int64_t first, int64_t col) const {
    if (result_.block.rows > 1) return;
    const int64_t width = std::min(result_.block.cols, w.cols() - col);
    for (int64_t r = 0; r < w.rows(); ++r) {
      scale_at(first + r, col) =
          scale_of(quantizer_, w.row(r).segment(col, width).cwiseAbs().maxCoeff());
    }
  }

  template <typename Column>
  void column(Matrix& w, int64_t first, int64_t c, int64_t end, Column errors) const {
    for (int64_t r = 0; r < w.rows(); ++r) {
      const float scale = scale_at(first + r, c);
      const auto q = static_cast<uint8_t>(encode(result_.dtype, w(r, c) * (1.0f / scale)));
      result_.data[static_cast<size_t>((first + r) * w.cols() + c)] = q;
      const float error = (w(r, c) - decode(result_.dtype, q) * scale) / upper_(c, c);
      errors(r) = error;
      w.row(r).segment(c, end - c) -= error * upper_.row(c).segment(c, end - c);
    }
  }

  const WeightQuantizer& quantizer_;
  const Matrix& upper_;
  QuantizedWeight& result_;
};

}  // namespace

QuantizedWeight gptq(const WeightQuantizer& quantizer, const MatrixView& weight,
                     const InputGram& gram, const GptqOptions& options, ThreadPool& pool) {
  const MatrixShape& shape = weight.shape;
  CHECK(std::ssize(gram.sum) == shape.cols * shape.cols);
  // Sizes, and the scale of a whole matrix.
  QuantizedWeight result = quantize_weight(quantizer, shape, weight.values, pool);
  std::vector<bool> dead;
  const Matrix upper = inverse_factor(gram, shape.cols, options.damping, dead);
  pool.run(ceil_div(shape.rows, kTileRows), [&](int64_t tile, int) {
    const int64_t first = tile * kTileRows, n = std::min(kTileRows, shape.rows - first);
    Matrix part =
        Eigen::Map<const Matrix>(weight.values.data() + first * shape.cols, n, shape.cols);
    for (int64_t c = 0; c < shape.cols; ++c) {
      if (dead[static_cast<size_t>(c)]) part.col(c).setZero();
    }
    Rows(quantizer, upper, result).quantize(part, first, options.block);
  });
  return result;
}

}  // namespace octet
