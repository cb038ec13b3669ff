// Row normalizations over x [rows, cols], row-major and dense. f32 inside, f32 or bf16 storage for
// each operand, one rounding on store. NaN and Inf stay in their row (and reach dw, db). Statistics
// are f32 [rows]. weight and bias are [cols] and optional.
//
// x may be codes with scales in groups (NormGroups): a row is decoded to f32 as it is needed.
//
// Deterministic: each row is one tile's; sums over rows are made in blocks of kBlockRows and added
// in order. The caller provides `scratch` of norm_backward_scratch(...) floats where dw or db is
// wanted; it need not be initialised.
#pragma once

#include "backends/cpu/common/operand.h"
#include "math/row_layers.h"

namespace octet::cpu {

class AmaxSink;  // amax_sink.h

// Groups of a stored x; `rows`: scratch of norm_groups_scratch(...) floats. Absent where size is 0.
struct NormGroups {
  In scales = {};
  int64_t size = 0;
  float* rows = nullptr;
};
constexpr int64_t norm_groups_scratch(RowShape shape, int n_threads) {
  return n_threads * round_up(shape.cols, 16);
}

// rms:    y[r,c] = x[r,c] rstd[r] w[c],  rstd[r] = 1 / sqrt(mean_c x[r,c]^2 + eps). Source: Zhang &
//         Sennrich 2019.
// layer:  y = (x - mean) rstd w + b,  rstd = 1 / sqrt(mean_c (x - mean)^2 + eps). Source: Ba, Kiros
//         & Hinton 2016.
enum class NormKind : uint8_t { rms, layer };

// y may alias x. Of kind rms there is no bias and no mean.
struct Norm {
  NormKind kind = NormKind::rms;
  In x = {}, weight = {}, bias = {};
  Out y = {};
  float *mean = nullptr, *rstd = nullptr;  // optional
  float eps = 1e-5f;
  NormGroups groups = {};
  // Both or neither: in the place of the sums.
  const float *known_mean = nullptr, *known_rstd = nullptr;
};
void norm(const Norm& args, RowShape shape, ThreadPool& pool);

// The statistics of one row, on the calling thread; of kind rms the mean is taken as 0.
using RowStatistics = octet::RowStatistics<float>;
RowStatistics row_statistics(NormKind kind, In x, int64_t cols, float eps);

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean_c g - h mean_c(g h)) [+ residual],
// dw = sum_r dy h,  db = sum_r dy. Of kind rms the means of x and of g are 0, and there is no db.
// dx may alias dy, residual or x.
struct NormBackward {
  NormKind kind = NormKind::rms;
  In x = {}, weight = {}, dy = {}, residual = {};
  const float *mean = nullptr, *rstd = nullptr;
  Out dx = {}, dw = {}, db = {};
  float* scratch = nullptr;
  NormGroups groups = {};
  AmaxSink* amax = nullptr;  // of dx, as it is stored
};
void norm_backward(const NormBackward& args, RowShape shape, ThreadPool& pool);

// Floats of scratch for a backward that returns n_sums of {dw, db}.
constexpr int64_t norm_backward_scratch(RowShape shape, int n_sums) {
  return n_sums * ceil_div(shape.rows, kBlockRows) * shape.cols;
}

// y[r,c] = x[r,c] + bias[c]. y may alias x.
void add_bias(In x, In bias, Out y, RowShape shape, ThreadPool& pool);

// y[c] = sum_r x[r,c]; scratch of norm_backward_scratch(shape, 1) floats.
void column_sum(In x, Out y, float* scratch, RowShape shape, ThreadPool& pool);

}  // namespace octet::cpu
