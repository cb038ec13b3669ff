// Primitives that reduce or contract. High-precision types are f32, bf16, fp16. Deterministic:
// partial results are joined in a fixed order. Equations: ir/ops/reduce.cpp, ir/ops/dot.cpp.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/params/move.h"

namespace octet::cuda {

// Axes of a tensor, the last one the fastest; strides in elements.
struct AxisList {
  int64_t rank = 0;
  int64_t extent[kMaxRank] = {}, stride[kMaxRank] = {};
};

// Pieces of one result that are made side by side, where there are few results. A sum's are part of
// its order; what is largest is found in any, so there they are as small as pays.
inline constexpr int64_t kReduceWarps = 4096, kSumPiece = 1024, kMaxPiece = 128;

// reduce_sum: in double, rounded once; reduce_max: -Inf of nothing, NaN where one is met; argmax:
// i32, the first of the largest, a NaN being the largest. Operand x, high precision; result y of
// `kept` in their order. Scratch: reduce_scratch_bytes.
struct ReduceParams {
  int64_t n_kept = 1, n_gone = 1;
  int64_t least_piece = kSumPiece;
  AxisList kept, gone;
  Dtype x = Dtype::f32, y = Dtype::f32;
  bool is_across = false;  // a warp a piece, whose elements lie together; else a thread
  int8_t reserved[5] = {};
};

constexpr int64_t reduce_pieces(const ReduceParams& p) {
  const int64_t wanted = kReduceWarps / std::max<int64_t>(p.n_kept, 1);
  return std::clamp<int64_t>(std::min(wanted, p.n_gone / p.least_piece), 1, kReduceWarps);
}
// A value and its place of each piece.
constexpr int64_t reduce_scratch_bytes(const ReduceParams& p) {
  const int64_t n = reduce_pieces(p);
  return n == 1 ? 0 : 16 * n * p.n_kept;
}

// dot: operands a, b, high precision; result y [batch, m, n], sums in double, rounded once. For
// what has no product of its own: correct, and slow.
struct DotParams {
  int64_t batch = 1, m = 1, n = 1, k = 1;
  AxisList a_batch, b_batch, a_free, b_free, a_deep, b_deep;
  Dtype a = Dtype::f32, b = Dtype::f32, y = Dtype::f32;
  int8_t reserved[5] = {};
};

}  // namespace octet::cuda
