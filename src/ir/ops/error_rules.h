// The error rules of primitives (ir/error_bounds.h), by what they do to the errors of operands.
#pragma once

#include "ir/error_bounds.h"
#include "ir/op_def.h"

namespace octet::ops::error {

using Rule = std::optional<ValueId>(ErrorBounds& e, const Node& node);

// Nothing is computed, or nothing is rounded.
Rule exact, moved, pad, concatenate, select;
// f(x) or f(x, z) whose derivatives are at most 1.
Rule rounded, rounded_both;
Rule exp, log, sqrt, rsqrt, square, mul, div, rescale, sum, dot;

}  // namespace octet::ops::error
