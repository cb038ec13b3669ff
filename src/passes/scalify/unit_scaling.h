// Unit scaling: a model whose values and gradients have a standard deviation near 1 at its start,
// by factors that are constants of its shapes: Logical -> Logical, of a forward graph or of a
// differentiated one.
//
// The model becomes another: parameters start as N(0, 1), linears and attention carry factors, and
// residual sums weigh their branch with tau. Gradients have factors of their own: of each parameter
// it is the gradient of the loss times a constant, which AdamW does not see. Sources: Blake, Orr &
// Luschi 2023 (unit scaling); Blake et al. 2024 (u-muP); the factors are those of the Python
// package unit-scaling 0.3.5, docs/scalify.md#unit-scaling has them in a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"

namespace octet {

namespace unit_scaling {
// low^(1 - share) high^share.
double between(double share, double low, double high);
// Factor of silu(gate) up, and of its gradients: one over the deviation, sqrt(2) to 2 by the
// argument's size.
double gated_factor();
// Factor of attention's result and its gradients: over so many keys whose softmax is nearly flat.
double attention_factor(AttentionMask mask, int64_t keys, int64_t head_dim);
// Factor of the gradient of logits: (p - [v = label]) times it is near 1 where p is 1 / vocab.
double logits_factor(int64_t vocab);
// Weight of the branch in the i-th of n residual sums beside 1 of what it skips: all attention
// layers, all MLPs and the embedding give the last layer's result the same variance.
double tau(int64_t i, int64_t n);
}  // namespace unit_scaling

// `seq`: the sequence that attention's factors are made for, whatever rows the graph has; 0: its
// own. Throws Error{invalid_argument} naming the op and its place where the graph is no decoder of
// pre-norm layers, each attention and then a gated MLP, with linears without biases and a head of
// its own.
Graph unit_scale(const Graph& logical, int64_t seq = 0);

// Factors of AdamW's learning rate, by parameter of a forward graph: 1 / sqrt(inputs) of a layer's
// linear, 1 / sqrt(width) of the embedding, 1 of the head and of norms; within the layers further
// 1 / sqrt(layers). Throws as unit_scale does.
std::map<std::string, double> unit_learning_rates(const Graph& forward);

}  // namespace octet
