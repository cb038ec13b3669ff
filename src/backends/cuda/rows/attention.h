// Which of attention's rows take what; equations and types: params/attention.h.
#pragma once

#include "backends/cuda/params/attention.h"

namespace octet::cuda {

// Queries of a text from which on tiles of them are worth their products on tensor cores, where
// keys are a cache's.
inline constexpr int64_t kManyQueries = 32;

// bf16 and fp16 of head sizes that are multiples of 8 up to 128. P and dS are rounded to that type
// for their products. Rows of heads are then multiples of 16 bytes, as are addresses in plans.
constexpr bool tensor_cores_take(const AttentionParams& p) {
  return p.dtype != Dtype::f32 && p.head_dim % 8 == 0 && p.head_dim <= 128 &&
         (!p.cached || (p.q_len >= kManyQueries && !p.bias.is_there));
}
// The gradient wants 104 KB of shared memory a block for heads of 128, of which these have 99.
constexpr bool has_little_shared(int capability) {
  return (capability > 80 && capability < 90) || capability >= 120;
}
constexpr bool tensor_gradient_takes(const AttentionParams& p, int capability) {
  return tensor_cores_take(p) && (p.head_dim <= 64 || !has_little_shared(capability));
}

// One query at a time, over a cache.
constexpr bool cached_takes(const AttentionParams& p) {
  return p.cached;
}

inline constexpr int kPlainTile = 32;
// Bytes of a plain kernel's block: tiles of q, k and v in f32, and of do; rows one element apart.
constexpr int64_t plain_shared_bytes(const AttentionParams& p, bool gradient) {
  return (gradient ? 4 : 3) * int64_t{kPlainTile} * (p.head_dim + 1) * 4;
}
constexpr bool plain_takes(const AttentionParams& p, bool gradient, int capability) {
  const int64_t most = has_little_shared(capability) ? 99 << 10 : 160 << 10;
  return !p.cached && plain_shared_bytes(p, gradient) <= most;
}

}  // namespace octet::cuda
