// Operations that the passes of phase Sharded share.
#pragma once

#include "ir/builder.h"
#include "passes/parallel/options.h"

namespace octet {

// The input becomes this many elements, a shard of what it was; no more where it is one already.
void cut_input(Graph& graph, ValueId id, int64_t elements);

// The input, which holds this rank's shard where it lies, with the others' gathered around it.
ValueId gather_around(Builder& builder, const ParallelOptions& options, ValueId input);

}  // namespace octet
