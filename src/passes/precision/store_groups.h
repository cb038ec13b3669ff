// COAT's stored activations as an edge rewrite: Typed -> Typed.
//
// Each value inside the layers that a non-linear op reads (the input of a norm, the gate and up of
// a gated activation, the input of GELU) is quantized in groups along its rows for the backward
// pass: the op's gradient reads dequantize(codes, scales) in its place. Where a node of the
// backward pass reads the op's result (the input of a linear), the op is repeated there on the same
// values, a norm with the statistics of the forward pass. The forward pass reads the values as they
// are computed; with ForwardReads::stored it reads the groups too, and its results are what the
// backward pass reads.
// With SavedAttention so are the values that attention's gradient reads: queries, keys and values
// (COAT, appendix D), with qkvo attention's output too; with ForwardReads::stored attention reads
// the groups of the first three.
// A residual sum is quantized from the f32 sum and stored in the stream's dtype beside it. Each
// reader has its own dequantize, in its own place, so that only codes and scales live from forward
// to backward. Source: COAT section 5, whose forward pass reads the groups (docs/numerics.md).
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"
#include "passes/precision/policy.h"

namespace octet {

struct StoreGroupsOptions {
  Dtype dtype = Dtype::e4m3;
  double target = 448;
  Granularity group = kGroupsOf16;  // or BxB
  ForwardReads forward_reads = ForwardReads::unquantized;
  SavedAttention attention = SavedAttention::wide;
  // log2 of the scale of a linear's result, by member_name: codes of what activations read of it
  // have that one, and GEMMs may store them: the forward pass reads those codes in any case.
  std::map<std::string, int> result_scales = {};
};

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options = {});

// True if the value is made by a norm or activation that store_groups repeats for the backward
// pass.
bool is_repeated_layer(const Graph& graph, ValueId id);

}  // namespace octet
