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

namespace octet::cpu {

class AmaxSink;  // amax_sink.h

// Of a stored x; `rows` is scratch of norm_groups_scratch(...) floats. Absent where size is 0.
struct NormGroups {
  In scales = {};
  int64_t size = 0;
  float* rows = nullptr;
};
constexpr int64_t norm_groups_scratch(RowShape shape, int n_threads) {
  return n_threads * round_up(shape.cols, 16);
}

// y[r,c] = x[r,c] rstd[r] w[c],  rstd[r] = 1 / sqrt(mean_c x[r,c]^2 + eps). Source: Zhang &
// Sennrich 2019. y may alias x.
struct RmsNorm {
  In x = {}, weight = {};
  Out y = {};
  float* rstd = nullptr;  // optional
  float eps = 1e-5f;
  NormGroups groups = {};
  const float* known_rstd = nullptr;  // in the place of 1 / sqrt(..), as below
};
void rms_norm(const RmsNorm& args, RowShape shape, ThreadPool& pool);

// The statistics of one row, on the calling thread: of rms_norm (its mean taken as 0) or
// layer_norm.
enum class NormKind : uint8_t { rms, layer };
struct RowStatistics {
  float mean = 0, rstd = 1;
};
RowStatistics row_statistics(NormKind kind, In x, int64_t cols, float eps);

// With h = x rstd and g = dy w:  dx = rstd (g - h mean_c(g h)) [+ residual],  dw = sum_r dy h.
// dx may alias dy, residual or x.
struct RmsNormBackward {
  In x = {}, weight = {}, dy = {}, residual = {};
  const float* rstd = nullptr;
  Out dx = {}, dw = {};
  float* scratch = nullptr;
  NormGroups groups = {};
  AmaxSink* amax = nullptr;  // of dx, as it is stored
};
void rms_norm_backward(const RmsNormBackward& args, RowShape shape, ThreadPool& pool);

// y = (x - mean) rstd w + b,  rstd = 1 / sqrt(mean_c (x - mean)^2 + eps). Source: Ba, Kiros &
// Hinton 2016. y may alias x.
struct LayerNorm {
  In x = {}, weight = {}, bias = {};
  Out y = {};
  float* mean = nullptr;  // optional, as rstd
  float* rstd = nullptr;
  float eps = 1e-5f;
  NormGroups groups = {};
  const float *known_mean = nullptr, *known_rstd = nullptr;
};
void layer_norm(const LayerNorm& args, RowShape shape, ThreadPool& pool);

// With h = (x - mean) rstd and g = dy w:  dx = rstd (g - mean_c g - h mean_c(g h)) [+ residual],
// dw = sum_r dy h,  db = sum_r dy. dx may alias dy, residual or x.
struct LayerNormBackward {
  In x = {}, weight = {}, dy = {}, residual = {};
  const float* mean = nullptr;
  const float* rstd = nullptr;
  Out dx = {}, dw = {}, db = {};
  float* scratch = nullptr;
  NormGroups groups = {};
  AmaxSink* amax = nullptr;  // of dx, as it is stored
};
void layer_norm_backward(const LayerNormBackward& args, RowShape shape, ThreadPool& pool);

// Floats of scratch for a backward that returns n_sums of {dw, db}.
constexpr int64_t norm_backward_scratch(RowShape shape, int n_sums) {
  return n_sums * ceil_div(shape.rows, kBlockRows) * shape.cols;
}

// y[r,c] = x[r,c] + bias[c]. y may alias x.
void add_bias(In x, In bias, Out y, RowShape shape, ThreadPool& pool);

// y[c] = sum_r x[r,c]; scratch of norm_backward_scratch(shape, 1) floats.
void column_sum(In x, Out y, float* scratch, RowShape shape, ThreadPool& pool);

}  // namespace octet::cpu
