// Cross entropy of rows of logits [rows, classes] with integer labels; label -1 is ignored.
//   lse[r] = log sum_c exp(x[r,c]),  loss[r] = lse[r] - x[r, label[r]]
//   smoothed[r] = loss[r] + s (x[r, label[r]] - mean_c x[r,c])
//   dx[r,c] = (exp(x[r,c] - lse[r]) - s / classes - (1 - s) [c == label[r]]) * scale
// with s = smoothing; loss, smoothed and dx are 0 where the label is -1.
// f32 inside (the sum of exponentials is in blocks of double), loss and lse f32. NaN and +Inf in a
// row make its loss NaN. dx may alias the logits. Deterministic. Throws bad_data on a label outside
// [-1, classes).
#pragma once

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

struct CrossEntropy {
  In logits = {};
  const int32_t* labels = nullptr;
  float* loss = nullptr;      // [rows]
  float* lse = nullptr;       // [rows]
  float* smoothed = nullptr;  // [rows], wanted where the smoothing is not 0
};
struct CrossEntropyShape {
  int64_t rows = 0, classes = 0;
  float smoothing = 0;
};
void cross_entropy(const CrossEntropy& args, CrossEntropyShape shape, ThreadPool& pool);

// One row's gradient: exp(x - lse) less `share`, which every class has of a smoothed label, times
// `scale`.
struct CrossEntropyRow {
  float lse = 0, share = 0, scale = 1;
};

struct CrossEntropyBackward {
  In logits = {};
  const int32_t* labels = nullptr;
  const float* lse = nullptr;
  Out dlogits = {};
  // scale = *inv_n * *dloss, read at launch; an absent one counts as 1.
  const float* inv_n = nullptr;
  const float* dloss = nullptr;
  const float* row_dloss = nullptr;  // optional [rows]: a further factor for each row
};
void cross_entropy_backward(const CrossEntropyBackward& args, CrossEntropyShape shape,
                            ThreadPool& pool);

}  // namespace octet::cpu
