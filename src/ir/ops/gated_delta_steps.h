// The steps of gated_delta (ir/ops/gated_delta.cpp), in the types that its operands have.
#pragma once

#include "ir/ops/common.h"

namespace octet::ops {

// Most tokens of a chunk.
inline constexpr int64_t kDeltaChunk = 32;

// As the op's.
struct DeltaOperands {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, log_decay = kNoValue, beta = kNoValue,
          doc_starts = kNoValue, state = kNoValue;
};

// The output and, with a state, the next one.
Values emit_delta_steps(Builder& b, const GatedDeltaAttrs& attrs, const DeltaOperands& x);

}  // namespace octet::ops
