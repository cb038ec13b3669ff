// Gradients whose values are made of data in few bytes and of a scale
// (passes/precision/store_gradients.h), and sums of such.
#pragma once

#include "ir/builder.h"

namespace octet {

// True if a node makes this gradient's value of a scale and of data that take fewer bytes.
bool is_stored_gradient(const Graph& typed, ValueId gradient);

// A sum of such gradients (of micro-batches, of ranks): FP16, rounded to nearest with a power of
// two that brings `amax`, its largest magnitude, to 2^14, within a factor of sqrt(2).
struct StoredSum {
  ValueId data = kNoValue, scale = kNoValue;
};
StoredSum store_sum(Builder& builder, ValueId sum, ValueId amax);
// Its value, f32.
ValueId value_of(Builder& builder, const StoredSum& sum);

}  // namespace octet
