// The gated delta rule, a linear attention whose state forgets: of each value head
//   S_t = e^g_t S_{t-1} + k_t b_t (v_t - e^g_t S_{t-1}^T k_t)^T    [key_dim, value_dim]
//   o_t = S_t^T q_t / sqrt(key_dim)
// with q and k of length 1 (x / sqrt(x^2 + 1e-6)), and S = 0 before a row's first token and, with
// isolated documents, before each document's. Source: Yang, Kautz, Hatamizadeh 2024. It is computed
// in chunks of 32 tokens or less: within a chunk as matrices, whose triangular systems are solved
// by blocks of 1, 2, 4, ..., and S from chunk to chunk, by a matrix of each. All of it consists of
// primitives, in single precision under every recipe; gradients follow from theirs.
//
// In functions over a KV cache (BatchSize::cache) S, and the last inputs of the convolution, are
// states beside the keys and values (ir/caches.h). There each row of the batch is of one text:
// the token at position 0 begins it anew, and tokens at -1, which stand behind all others of their
// row, leave the states as they are. A state cannot go back to an earlier token.
#pragma once

#include "nn/blocks.h"

namespace octet {

// q, k: [B*T, key_heads * key_dim]; v: [B*T, value_heads * value_dim]; log_decay, at most 0, and
// beta: [B*T, value_heads]. Value head h reads key head h / (value_heads / key_heads).
struct GatedDelta {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, log_decay = kNoValue, beta = kNoValue;
  int64_t key_heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;
};

// [B*T, value_heads * value_dim]. Throws Error{invalid_argument} for isolated documents over a KV
// cache.
ValueId gated_delta_rule(Blocks& blocks, const GatedDelta& x);

// y_t = sum over i < width of weight[:, width - 1 - i] x_{t-i}, of each channel by itself, within
// the row and, with isolated documents, the document. x: [B*T, C], weight: [C, width].
ValueId causal_convolution(Blocks& blocks, ValueId x, ValueId weight);

}  // namespace octet
