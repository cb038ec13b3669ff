// COAT's stored activations as an edge rewrite: Typed -> Typed.
//
// Each value inside the layers that a non-linear op reads (the input of a norm, the gate and up of
// a gated activation, the input of GELU) is quantized in groups along its rows; that op and its
// gradient read dequantize(codes, scales) instead. A residual sum is quantized from the f32 sum and
// stored in the stream's dtype beside it. Each reader has its own dequantize, in its own place, so
// that only codes and scales live from forward to backward. Source: COAT section 5 and coat.md
// section 2 (docs/numerics.md).
#pragma once

#include "ir/graph.h"

namespace octet {

struct StoreGroupsOptions {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  int64_t group = 16;
};

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options = {});

}  // namespace octet
