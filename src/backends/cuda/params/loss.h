// Embedding and cross-entropy, with their gradients. High-precision types are f32, bf16, fp16.
// Deterministic.
#pragma once

#include <cstdint>

#include "formats/dtype.h"

namespace octet::cuda {

// embedding: operands table [vocabulary, cols], ids i32 [tokens]; result y[t] = table[ids[t]], 0
// where the id is outside [0, vocabulary).
// embedding_grad: operands dy [tokens, cols], ids; result dtable[v] = sum of dy[t] over the t with
// ids[t] = v, in f32 in the order of t within runs of kEmbeddingRun sorted tokens, then in the
// order of the runs, rounded once. Ids outside add nothing.
struct EmbeddingParams {
  int64_t tokens = 0, vocabulary = 0, cols = 0;
  Dtype from = Dtype::bf16, to = Dtype::bf16;  // of the two float tensors
  int8_t reserved[6] = {};
};

inline constexpr int64_t kEmbeddingRun = 32;      // sorted tokens that one block sums
inline constexpr int64_t kEmbeddingTile = 1024;   // tokens that one block sorts
inline constexpr int64_t kEmbeddingDigits = 256;  // values of a digit of the sort
// Digits of a row's number, of one that is outside too.
constexpr int embedding_digits(int64_t vocabulary) {
  int n = 1;
  while ((vocabulary /= kEmbeddingDigits) > 0) ++n;
  return n;
}

// Scratch of embedding_grad: keys and tokens, twice each; the counts of digits by tile; then two
// rows of f32 for each run.
constexpr int64_t embedding_runs(int64_t tokens) {
  return (tokens + kEmbeddingRun - 1) / kEmbeddingRun;
}
constexpr int64_t embedding_tiles(int64_t tokens) {
  return (tokens + kEmbeddingTile - 1) / kEmbeddingTile;
}
constexpr int64_t embedding_grad_scratch_bytes(int64_t tokens, int64_t cols) {
  const int64_t sorted = 4 * tokens + kEmbeddingDigits * embedding_tiles(tokens);
  return int64_t{sizeof(int32_t)} * ((sorted + 3) / 4 * 4 + 2 * embedding_runs(tokens) * cols);
}

// cross_entropy: operands logits [rows, classes], labels i32 [rows], inv_n f32; results loss =
// inv_n sum nll + s (logits[label] - mean logits), s = smoothing, lse [rows] = log sum exp logits,
// nll [rows] = lse - logits[label], all f32; nll, and what the loss sums, is 0 where the label is
// outside [0, classes). f32 inside, the sum of the rows in double, in a fixed order. Scratch: what
// the loss sums, f32 [rows], where s is not 0.
// cross_entropy_grad: operands dloss f32, one number or (dloss_stride 1) [rows], logits, labels,
// lse f32, inv_n f32; result dlogits = (exp(logits - lse) - s / classes - (1 - s) [class = label])
// dloss inv_n, 0 in rows without label. It may be logits.
struct CrossEntropyParams {
  int64_t rows = 0, classes = 0;
  Dtype logits = Dtype::bf16, dlogits = Dtype::bf16;
  int8_t dloss_stride = 0, reserved = 0;
  float smoothing = 0;
};
constexpr int64_t cross_entropy_scratch_bytes(int64_t rows, float smoothing) {
  return smoothing == 0 ? 0 : rows * static_cast<int64_t>(sizeof(float));
}

}  // namespace octet::cuda
