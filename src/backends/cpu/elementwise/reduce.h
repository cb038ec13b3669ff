// Sums over a whole tensor: blocks of kBlockElems, each in double, added in order. Deterministic
// for any thread count. The caller provides reduce_scratch(n) doubles.
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

constexpr int64_t reduce_scratch(int64_t n) {
  return ceil_div(n, kBlockElems);
}

// `finite`: no NaN or Inf among the elements (squares of finite f32 cannot overflow a double).
struct SumOfSquares {
  double value = 0;
  bool finite = true;
};
SumOfSquares sum_of_squares(In x, int64_t n, double* scratch, ThreadPool& pool);

double sum(In x, int64_t n, double* scratch, ThreadPool& pool);

// Sums of rows, each in double: y[r] = sum of x[r, :], f32. Deterministic for any thread count.
void row_sums(In x, float* y, RowShape shape, ThreadPool& pool);

// max |x| over the finite elements; `finite` is false where an element is NaN or Inf. scratch:
// reduce_scratch(n) doubles.
struct Amax {
  float value = 0;
  bool finite = true;
};
Amax amax(In x, int64_t n, double* scratch, ThreadPool& pool);

}  // namespace octet::cpu
