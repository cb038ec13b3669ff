// Parts that norms share with the ops that have a norm in them.
#pragma once

#include "ir/ops/common.h"

namespace octet::ops {

// A norm whose statistics are known: (x - mean) rstd w + b, without what is absent.
struct KnownNorm {
  ValueId x, mean, rstd, weight, bias;
};
ValueId emit_normalized(Builder& b, const KnownNorm& norm);

// The norm's x in f32, dequantized where it is quantized.
ValueId emit_f32(Builder& b, const Node& node, ScalePlace place);

}  // namespace octet::ops
