// The output head and the loss in runs of rows, so that the logits [T, V] never exist whole:
// Typed -> Typed.
//
//   logits = x w^T,  (loss, lse, nll) = cross_entropy(logits),  dlogits = cross_entropy_grad(...),
//   dx = dlogits w,  dw = dlogits^T x
// become the same per run of rows of x, forward and backward of a run next to each other; the loss
// is the sum over the runs, dw is summed in f32 over the runs and rounded once. Sums are in another
// order than without chunks; for a given graph and options the order is fixed.
// A head whose logits, nll or statistics anything else reads, or that is not larger than a run,
// stays.
#pragma once

#include "ir/graph.h"

namespace octet {

struct ChunkHeadOptions {
  int64_t chunk_bytes = int64_t{32} << 20;  // of logits in a run; a run has at least one row
};

Graph chunk_head(const Graph& graph, const ChunkHeadOptions& options = {});

}  // namespace octet
