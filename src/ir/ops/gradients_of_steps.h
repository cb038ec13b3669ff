// Gradients of an op through the steps that it is composed of.
#pragma once

#include <map>

#include "ir/ops/common.h"

namespace octet::ops {

// Gradients of `of` through the graph's nodes from number `first` on, steps of one result each, of
// which `arriving` has the gradients of the last; kNoValue where none flows.
Values gradients_of_steps(Builder& b, size_t first, std::map<ValueId, ValueId> arriving,
                          const Values& of);

}  // namespace octet::ops
