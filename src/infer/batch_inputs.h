// Writes a batch into a function's inputs.
#pragma once

#include "data/loader.h"
#include "runtime/executor.h"

namespace octet {

// "tokens" and "positions" (0 to seq - 1 in each row, or from 0 in each document), "doc_starts",
// and "labels" and "inv_n" where the function has them. The batch must have the function's size.
void write_batch(BoundPlan& function, const Batch& batch, float inv_n);

// A batch of one row: `tokens` padded on the right to `seq`, without labels.
Batch padded_row(std::span<const int32_t> tokens, int64_t seq);

}  // namespace octet
