// Copies of weights in codes, kept from one update to the next (kept_operands.h).
//
// A typed training graph makes every copy from the parameters that it reads, as an output that
// updates a derived input. A program's functions need it at other places: prepare_state from the
// parameters as they are, step and update from the parameters' next values, the rest not at all.
#pragma once

#include "ir/builder.h"

namespace octet {

// The graph without those outputs and what only they need.
Graph without_weight_copies(const Graph& typed);

// Whose copies: of every weight, or of those that an update changes.
enum class CopiesOf : uint8_t { all, trained };

// Appends them to the builder's graph. They read the next value of each parameter that the graph
// updates, and the parameter itself elsewhere; inputs that the graph lacks are declared.
void append_weight_copies(Builder& builder, const Graph& typed, CopiesOf which);

}  // namespace octet
