// Batch norm over the rows of x [rows, cols], row-major and dense: ir/ops/batch_norm.cpp has the
// equations. f32 inside, f32 or bf16 storage for each operand, one rounding on store; statistics
// are f32 [cols]. NaN and Inf reach their column.
//
// Sums over rows are made in blocks of kStatisticRows, of f32 about the block's first row, and the
// blocks' are joined in double in their order (Chan et al. 1979): same bits for any number of
// threads. The caller provides batch_norm_scratch floats, which need not be initialised.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

inline constexpr int64_t kStatisticRows = 512;

// Two sums a block and column, and five numbers a column.
constexpr int64_t batch_norm_scratch(RowShape shape) {
  return (2 * ceil_div(shape.rows, kStatisticRows) + 5) * shape.cols;
}

// own: by x's statistics, of which any may be a result; y may alias x.
struct BatchNorm {
  In x = {}, weight = {}, bias = {};
  In mean = {}, variance = {};
  Out y = {};
  bool own = true;
  float *own_mean = nullptr, *own_variance = nullptr;
  Out next_mean = {}, next_variance = {};  // may alias mean and variance
  float eps = 1e-5f;
  double momentum = 0.1;
  float* scratch = nullptr;
};
void batch_norm(const BatchNorm& args, RowShape shape, ThreadPool& pool);

struct BatchNormBackward {
  In dy = {}, x = {}, own_mean = {}, own_variance = {}, weight = {};
  Out dx = {}, dw = {}, db = {};  // any may be absent; dx may alias dy or x
  float eps = 1e-5f;
  float* scratch = nullptr;
};
void batch_norm_backward(const BatchNormBackward& args, RowShape shape, ThreadPool& pool);

}  // namespace octet::cpu
