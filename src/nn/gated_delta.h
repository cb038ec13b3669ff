// The gated delta rule (ir/ops/gated_delta.cpp) and the convolution before it, in single precision
// under every recipe.
//
// In functions over a KV cache (BatchSize::cache) the rule's state, and the last inputs of the
// convolution, are states beside the keys and values (ir/caches.h). There each row of the batch is
// of one text: the token at position 0 begins it anew, and tokens at -1, which stand behind all
// others of their row, leave the states as they are. A state cannot go back to an earlier token.
#pragma once

#include "nn/blocks.h"

namespace octet {

// q, k: [B*T, key_heads * key_dim]; v: [B*T, value_heads * value_dim]; log_decay, at most 0, and
// beta: [B*T, value_heads]. Value head h reads key head h / (value_heads / key_heads).
struct DeltaInputs {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, log_decay = kNoValue, beta = kNoValue;
  int64_t key_heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;
};

// [B*T, value_heads * value_dim]. Throws Error{invalid_argument} for isolated documents over a KV
// cache.
ValueId gated_delta_rule(Blocks& blocks, const DeltaInputs& x);

// y_t = sum over i < width of weight[:, width - 1 - i] x_{t-i}, of each channel by itself, within
// the row and, with isolated documents, the document. x: [B*T, C], weight: [C, width].
ValueId causal_convolution(Blocks& blocks, ValueId x, ValueId weight);

}  // namespace octet
