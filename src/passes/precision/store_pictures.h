// COAT's stored activations of convolutional networks: Typed -> Typed, behind quantize_linears.
//
// Inside the layers the backward pass reads of what the forward pass made only
//   - graph inputs, statistics and scales: what has no more than one axis,
//   - sums of products (what GEMMs and depthwise convolutions give, which batch norms read) and
//     what another layer made (a residual stream), each in groups of 1 x G over the channels of a
//     pixel,
// and makes all else again from these: normalized pictures, ReLU, windows, their codes. An op is
// repeated with the statistics and the scales of the forward pass, before its first reader of a
// layer. The forward pass reads what it made: throws Error{invalid_argument} for
// ForwardReads::stored.
// Source: COAT (Xi et al. 2025) section 5, whose non-linear layers are norms and activations; here
// batch norm and ReLU, which are written in primitives.
#pragma once

#include "passes/precision/store_groups.h"

namespace octet {

Graph store_pictures(const Graph& graph, const StoreGroupsOptions& options);

// True if layers have pictures, and no norm or activation of their own that store_groups stores.
bool stores_pictures(const Graph& graph);

}  // namespace octet
