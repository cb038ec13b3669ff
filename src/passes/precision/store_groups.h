// COAT's stored activations as an edge rewrite: Typed -> Typed.
//
// Each value inside the layers that a non-linear op reads (the input of a norm, the gate and up of
// a gated activation, the input of GELU) is quantized in groups along its rows; that op and its
// gradient read dequantize(codes, scales) instead. A residual sum is quantized from the f32 sum and
// stored in the stream's dtype beside it. Each reader has its own dequantize, in its own place, so
// that only codes and scales live from forward to backward. Source: COAT section 5 and coat.md
// section 2 (docs/numerics.md).
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"

namespace octet {

struct StoreGroupsOptions {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  int64_t group = 16;
  // log2 of the scale of a linear's result, by linear_name: codes of what activations read of it
  // have that one, and GEMMs may store them.
  std::map<std::string, int> result_scales = {};
};

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options = {});

}  // namespace octet
