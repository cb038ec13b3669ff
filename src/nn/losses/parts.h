// Primitives that losses share, on numbers of rows and tokens.
#pragma once

#include "ir/builder.h"
#include "nn/losses/loss.h"

namespace octet {

// 1 where the condition holds, else 0.
ValueId as_numbers(Builder& b, ValueId condition);
// A cross entropy with labels i32 [N], kIgnoredLabel where a row does not count, of logits [N, C].
struct LabelLoss {
  ValueId loss = kNoValue;     // [], inv_n * sum, of smoothed labels where these are wanted
  ValueId nll = kNoValue;      // [N], of the labels themselves
  ValueId correct = kNoValue;  // bool [N]: the first of the largest logits is the label's
};
LabelLoss label_loss(Builder& b, ValueId logits, ValueId labels, ValueId inv_n,
                     double smoothing = 0);
// The loss, and its metrics nll and correct.
LossValues label_values(Builder& b, const LabelLoss& all);
// log(1 + e^x), whose gradient is the logistic function at 0 too.
ValueId softplus(Builder& b, ValueId x);
// Rows `row`, R + row, 2 R + row, ... of samples of R rows each, [R n, ...] -> [n, ...].
ValueId row_of_samples(Builder& b, ValueId x, int64_t row, int64_t rows_per_sample);
// Rows 0, 2, 4, ... of [2 n, ...], and those behind them, [n, ...].
struct Pairs {
  ValueId first = kNoValue, second = kNoValue;
};
Pairs pairs_of(Builder& b, ValueId x);

}  // namespace octet
