// Attention with grouped heads, forward and backward; equations, and which keys a query sees:
// ir/ops/attention.cpp.
//   q, o, do, dq: [batch * q_len, heads * head_dim]
//   k, v, dk, dv: [batch * kv_len, kv_heads * head_dim], of a cache too
//   lse: [batch * heads * q_len] f32, log of the sum of exp(scale q k + bias)
//   key_begins, key_ends: [batch * q_len] i32, optional, neither less than for the query before
//   bias, dbias: [1 or batch, 1 or heads, 1 or q_len, kv_len]
// cached: positions: [batch * q_len] i32, the last key that a query sees; negative: none, then o =
// 0 and lse = -Inf. Forward alone, on our own kernels.
// All but lse are of one type, f32, bf16 or fp16, and a bias of it or f32. Sums in f32. The
// library's kernels run bf16 and fp16 of head sizes that are multiples of 8 up to 128, where it is
// there, with a window or without one, and without a mask of any two lengths; ours run the rest:
// causal masks of two lengths, ranges of keys, a bias, any head size up to kMaxHeadDim, memory
// linear in the sequence, always deterministic. Tiles that no query sees are skipped by both.
// Backward, the library sums dq in no fixed order; where the run must repeat its bits it keeps dP
// instead, a square of the sequence, and ours run where that would be too much.
#pragma once

#include <compare>
#include <cstdint>

#include "base/host_device.h"
#include "formats/dtype.h"

namespace octet::cuda {

inline constexpr int64_t kMaxHeadDim = 256;

// Elements from one entry, head and query to the next; 0: they share one.
struct AttentionBias {
  int64_t batch = 0, head = 0, query = 0;
  Dtype dtype = Dtype::f32;
  bool is_there = false, has_gradient = false;
  uint8_t reserved[5] = {};
  auto operator<=>(const AttentionBias&) const = default;
};

// Cases of the kernels on tensor cores: queries over a cache; as many keys as queries; any
// two lengths and ranges; and with a bias.
enum class AttentionForm : uint8_t { cached, square, any, biased };

struct AttentionParams {
  int64_t batch = 1, q_len = 1, heads = 1, kv_heads = 1, head_dim = 1;
  float scale = 1;
  Dtype dtype = Dtype::f32;
  bool causal = true;
  bool key_begins = false, key_ends = false;  // whether they are there
  int64_t window = 0;  // keys that a causal query sees, its own the last; 0: all
  int64_t kv_len = 1;
  AttentionBias bias = {};
  bool cached = false;
  AttentionForm form = AttentionForm::any;
  // Over a cache, one query at a time: heads of a block, and keys that a group waits for at once.
  uint8_t heads_of_block = 1, keys_at_once = 2;
  uint8_t slices = 1;  // blocks that share a row's keys
  // Of a chain: positions and the caches' older rows were written before the kernel before it.
  bool reads_ahead = false;
  uint8_t reserved[2] = {};
  auto operator<=>(const AttentionParams&) const = default;
};

inline constexpr int kManyKeys = 8, kFewKeys = 2;  // AttentionParams::keys_at_once
// Over a cache, runs of kSliceKeys keys belong to kSlices slices in turn. Each slice has a softmax
// of its own, and these are joined in their order, whoever makes them.
inline constexpr int kSliceKeys = 256, kSlices = 16;
OCTET_HOST_DEVICE constexpr int64_t slices_of(int64_t n_keys) {
  const int64_t runs = (n_keys + kSliceKeys - 1) / kSliceKeys;
  return runs < kSlices ? runs : kSlices;
}

constexpr int64_t attention_rows(const AttentionParams& p) {
  return p.batch * p.q_len * p.heads;
}
// Of slices that blocks of their own make: what each has found of a row, head_dim + 2 floats.
constexpr int64_t cached_scratch_bytes(const AttentionParams& p) {
  return p.slices == 1 ? 0 : 4 * attention_rows(p) * p.slices * (p.head_dim + 2);
}
// Keys as many as queries, causal, with a window and key_begins or without, or full without either.
constexpr bool is_square(const AttentionParams& p) {
  return !p.cached && p.q_len == p.kv_len && !p.key_ends && !p.bias.is_there &&
         (p.causal || (p.window == 0 && !p.key_begins));
}
// Full, of any two lengths: a text's queries over a source's keys.
constexpr bool is_rectangular(const AttentionParams& p) {
  return !p.cached && !p.causal && p.window == 0 && !p.key_begins && !p.key_ends &&
         !p.bias.is_there;
}
// Its causal masks begin at the first key, ours end at the last: of two lengths they differ.
constexpr bool library_may_take(const AttentionParams& p) {
  return (is_square(p) || is_rectangular(p)) && !p.key_begins && p.dtype != Dtype::f32 &&
         p.head_dim % 8 == 0 && p.head_dim <= 128;
}

inline constexpr int64_t kAttentionSlack = int64_t{8} << 20;

// Upper bounds of what the library asks for: forward next to nothing; backward the sum of do * o
// per row, an f32 sum of dq, and dk and dv of every query head where heads share them.
constexpr int64_t attention_grad_scratch_bytes(const AttentionParams& p) {
  const int64_t rows = p.batch * p.heads * ((p.q_len + 127) / 128 * 128);
  const int64_t keys = p.batch * p.heads * ((p.kv_len + 127) / 128 * 128);
  const int64_t shared = p.heads == p.kv_heads ? 0 : 2 * 4 * keys * p.head_dim;
  return kAttentionSlack + 2 * 4 * rows + 4 * rows * p.head_dim + shared;
}

inline constexpr int64_t kMaxDpBytes = int64_t{4} << 30;

// Bytes the library's deterministic backward asks for beside that: dP of every head, two bytes an
// element, queries padded to 64 and keys to 128. 0 where it would be more than kMaxDpBytes.
constexpr int64_t attention_dp_bytes(const AttentionParams& p) {
  if (!library_may_take(p)) return 0;
  const int64_t queries = (p.q_len + 63) / 64 * 64, keys = (p.kv_len + 127) / 128 * 128;
  const int64_t bytes = 2 * p.batch * p.heads * queries * keys;
  return bytes <= kMaxDpBytes ? bytes : 0;
}

}  // namespace octet::cuda
