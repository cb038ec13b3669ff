// Attention with grouped heads, forward and backward; equations: ir/ops/attention.cpp.
//   q, o, do, dq: [batch * seq, heads * head_dim]    k, v, dk, dv: [batch * seq, kv_heads *
//   head_dim] lse: [batch * heads * seq] f32, log of the sum of exp(scale q k)
//   doc_starts: [batch * seq] i32, optional: where in its row the document of a token begins,
//   never less than for the token before
// attention_cached: k, v: [batch * capacity, ...]; positions: [batch * seq] i32, the last key that
// a
//   query sees; negative: none, then o = 0 and lse = -Inf. Forward alone, on our own kernels.
// All but lse are of one type, f32, bf16 or fp16. Sums in f32. The library's kernels run bf16 and
// fp16 of head sizes that are multiples of 8 up to 128, where it is there, with a window or without
// one; ours run the rest: documents, any head size up to kMaxHeadDim, memory linear in the
// sequence, always deterministic. Tiles that no query sees are skipped by both. Backward, the
// library sums dq in no fixed order; where the run must repeat its bits it keeps dP instead, a
// square of the sequence, and ours run where that would be too much.
#pragma once

#include <compare>
#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

inline constexpr int64_t kMaxHeadDim = 256;

struct AttentionParams {
  int64_t batch = 1, seq = 1, heads = 1, kv_heads = 1, head_dim = 1;
  float scale = 1;
  Dtype dtype = Dtype::f32;
  bool causal = true;
  bool documents = false;  // doc_starts are there
  uint8_t reserved = 0;
  int64_t window = 0;    // keys that a causal query sees, its own the last; 0: all
  int64_t capacity = 0;  // of attention_cached: rows of k and v a batch entry
  auto operator<=>(const AttentionParams&) const = default;
};

constexpr int64_t attention_rows(const AttentionParams& p) {
  return p.batch * p.seq * p.heads;
}
constexpr bool library_may_take(const AttentionParams& p) {
  return !p.documents && p.dtype != Dtype::f32 && p.head_dim % 8 == 0 && p.head_dim <= 128;
}

inline constexpr int64_t kAttentionSlack = int64_t{8} << 20;

// Upper bounds of what the library asks for: forward next to nothing; backward the sum of do * o
// per row, an f32 sum of dq, and dk and dv of every query head where heads share them.
constexpr int64_t attention_grad_scratch_bytes(const AttentionParams& p) {
  const int64_t seq = (p.seq + 127) / 128 * 128;
  const int64_t rows = p.batch * p.heads * seq;
  const int64_t shared = p.heads == p.kv_heads ? 0 : 2 * 4 * rows * p.head_dim;
  return kAttentionSlack + 2 * 4 * rows + 4 * rows * p.head_dim + shared;
}

inline constexpr int64_t kMostDpBytes = int64_t{4} << 30;

// What the library's deterministic backward asks for beside that: dP of every head, two bytes an
// element, queries padded to 64 and keys to 128. 0 where it would be more than kMostDpBytes.
constexpr int64_t attention_dp_bytes(const AttentionParams& p) {
  if (!library_may_take(p)) return 0;
  const int64_t queries = (p.seq + 63) / 64 * 64, keys = (p.seq + 127) / 128 * 128;
  const int64_t bytes = 2 * p.batch * p.heads * queries * keys;
  return bytes <= kMostDpBytes ? bytes : 0;
}

}  // namespace octet::cuda
