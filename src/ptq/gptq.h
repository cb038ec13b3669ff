// GPTQ: a weight is quantized column by column, and what each column loses is made good by the
// columns after it, as the inverse of the inputs' Hessian says. Source: Frantar et al. 2023,
// algorithm 1.
//   H = (2 / n) sum x x^T + damping mean(diag H) I;   U: H^-1 = U^T U, upper Cholesky factor
//   for column c:  q_c = quantize(w_c);  e = (w_c - q_c) / U_cc;  w_j -= e U_cj for j > c
// An input that is always 0 has weights 0. A group's scale is of its columns as they then are.
#pragma once

#include "ptq/simulate.h"

namespace octet {

struct GptqOptions {
  double damping = 0.01;
  int64_t block = 128;  // columns between two updates of those beyond
};

struct MatrixView {
  MatrixShape shape;
  std::span<const float> values;
};
// The sum over n_rows inputs of x^T x, [cols, cols].
struct InputGram {
  std::span<const double> sum;
  int64_t n_rows = 0;
};

// The quantizer's blocks are one row high, or the whole matrix. In f32 beyond the Hessian; the same
// on any number of threads. Throws Error{numerics} where the damped Hessian is not positive
// definite.
QuantizedWeight gptq(const WeightQuantizer& quantizer, const MatrixView& weight,
                     const InputGram& gram, const GptqOptions& options, ThreadPool& pool);

}  // namespace octet
