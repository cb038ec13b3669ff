// The gated delta rule, forward and backward; equations: ir/ops/gated_delta.cpp.
//   q, k, dq, dk: [batch * seq, key_heads * key_dim]; v, o, do, dv: [batch * seq, heads *
//   value_dim] log_decay, beta and their gradients: [batch * seq, heads]; doc_starts: [batch * seq]
//   i32 state, next_state: [batch, heads, key_dim, value_dim]
// Each operand and result is f32, bf16 or fp16; inside f32, products of f32 factors in three parts
// of TF32 (kernels/attention/delta_product.cuh), so that no bit of an operand is lost. Texts are
// cut in chunks of kDeltaRows tokens. Of a chunk, with G the sums of log_decay from its first token
// on, D_ij = e^(G_i - G_j) for j <= i of one document, else 0, and S the state before it:
//   L = D (k k^T) below the diagonal, P = D (q k^T), M = (I + L diag(beta))^-1
//   N = M (v - e^G k S), U = beta N, o = e^G q S + P U, S' = e^G_last S + k^T e^(G_last - G) U
// and of the gradients, with dS' that of the state behind the chunk:
//   dU = P^T do + e^(G_last - G) k dS', E = M^T beta dU = dv
//   dS = e^G_last dS' + q^T e^G do - k^T e^G E
// Between chunks S and dS go from one to the next in order; columns of values are independent. The
// rest is of each chunk by itself. Every result has one writer and one order of sums: the same bits
// in every run. NaN and Inf stay in their head.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/host_device.h"
#include "formats/dtype.h"

namespace octet::cuda {

inline constexpr int64_t kMaxDeltaDim = 256;  // of keys
inline constexpr int kDeltaRows = 64;

struct GatedDeltaParams {
  int64_t batch = 1, seq = 1, key_heads = 1, heads = 1, key_dim = 1, value_dim = 1;
  Dtype q = Dtype::f32, k = Dtype::f32, v = Dtype::f32, log_decay = Dtype::f32, beta = Dtype::f32,
        state = Dtype::f32, o = Dtype::f32, next_state = Dtype::f32;
  bool has_documents = false, has_state = false;
  // Of the gradient.
  Dtype dout = Dtype::f32, dq = Dtype::f32, dk = Dtype::f32, dv = Dtype::f32,
        dlog_decay = Dtype::f32, dbeta = Dtype::f32;
};

// The numbers of a chunk's tokens. Behind the last token: those of tokens that change nothing.
struct DeltaNumbers {
  double sums[kDeltaRows];                                        // G
  float inv_q[kDeltaRows], inv_k[kDeltaRows];                     // q's with 1 / sqrt(key_dim)
  float since[kDeltaRows], behind[kDeltaRows], beta[kDeltaRows];  // e^G, e^(G_last - G)
  float read_q[kDeltaRows], read_k[kDeltaRows];                   // since inv_q, since inv_k
  float write_k[kDeltaRows];                                      // behind inv_k
  int32_t start[kDeltaRows];  // where the token's document begins; -1: one document
  float passed;               // e^G_last
  float reserved[3];
};

// Key columns of a kernel's tiles, and value columns of a block.
constexpr int delta_keys(int64_t key_dim) {
  return key_dim <= 64 ? 64 : key_dim <= 128 ? 128 : 256;
}
OCTET_HOST_DEVICE constexpr int delta_columns(int keys) {
  return keys == 256 ? 16 : 64;
}

constexpr int64_t delta_pairs(const GatedDeltaParams& p) {
  return p.batch * p.heads;
}
constexpr int64_t delta_chunks(const GatedDeltaParams& p) {
  return (p.seq + kDeltaRows - 1) / kDeltaRows;
}
constexpr int64_t delta_slices(const GatedDeltaParams& p) {
  const int columns = delta_columns(delta_keys(p.key_dim));
  return (p.value_dim + columns - 1) / columns;
}

// Pieces of scratch, in floats from its begin on, each of all chunks of all heads.
struct DeltaScratch {
  int64_t numbers = 0;
  int64_t solved = 0, scores = 0, blocked = 0;  // M, P, L
  int64_t news = 0, dnews = 0;                  // N, E: [64, value_dim]
  int64_t states = 0, dstates = 0;              // before each chunk; of those behind each
  int64_t unit_dq = 0, unit_dk = 0;             // [64, key_dim]
  int64_t floats = 0;
};
constexpr DeltaScratch delta_scratch(const GatedDeltaParams& p, bool gradient) {
  DeltaScratch s;
  const int64_t n = delta_pairs(p) * delta_chunks(p);
  const auto take = [&s](int64_t n_floats) {
    const int64_t at = s.floats;
    s.floats += (n_floats + 63) / 64 * 64;
    return at;
  };
  s.numbers = take(n * static_cast<int64_t>(sizeof(DeltaNumbers) / sizeof(float)));
  s.solved = take(n * kDeltaRows * kDeltaRows);
  s.scores = take(n * kDeltaRows * kDeltaRows);
  if (!gradient) return s;
  s.blocked = take(n * kDeltaRows * kDeltaRows);
  s.news = take(n * kDeltaRows * p.value_dim);
  s.dnews = take(n * kDeltaRows * p.value_dim);
  s.states = take(n * p.key_dim * p.value_dim);
  s.dstates = take(n * p.key_dim * p.value_dim);
  s.unit_dq = take(n * kDeltaRows * p.key_dim);
  s.unit_dk = take(n * kDeltaRows * p.key_dim);
  return s;
}

// Floats of a row of a tile, whose rows lie eight banks apart.
OCTET_HOST_DEVICE constexpr int delta_stride(int columns) {
  return columns + 8;
}
// Bytes of shared memory of the kernels' blocks.
struct DeltaShared {
  int64_t chunks = 0, scan = 0, back = 0, gradients = 0;
};
constexpr DeltaShared delta_shared(int keys) {
  const int64_t columns = delta_columns(keys);
  const int64_t of_keys = int64_t{kDeltaRows} * delta_stride(keys);
  const int64_t of_values = int64_t{kDeltaRows} * delta_stride(static_cast<int>(columns));
  const int64_t of_pairs = int64_t{kDeltaRows} * delta_stride(kDeltaRows);
  const int64_t of_state = int64_t{keys} * delta_stride(static_cast<int>(columns));
  constexpr int64_t kNumbers = sizeof(DeltaNumbers) / 4, kSums = 16 * kDeltaRows;
  return {
      .chunks = 4 * (2 * of_keys + 2 * of_pairs + kNumbers),
      .scan = 4 * (of_state + 2 * of_keys + of_values + 2 * of_pairs + kNumbers),
      .back = 4 * (of_state + 2 * of_keys + 2 * of_values + 2 * of_pairs + kNumbers),
      .gradients = 4 * (of_state + 2 * of_keys + 3 * of_values + 2 * of_pairs + kNumbers + kSums)};
}

}  // namespace octet::cuda
