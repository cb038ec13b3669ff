// A chunk of the gated delta rule as both directions compute it (gated_delta.h).
#pragma once

#include "backends/cpu/attention/delta_rows.h"
#include "backends/cpu/attention/gated_delta.h"

namespace octet::cpu {

inline constexpr int64_t kDeltaTokens = 32;
// Rows of a chunk's triangular system that are solved one after the other.
inline constexpr int64_t kDeltaSolved = 8;

// Hands out pieces of a thread's scratch, whole rows of 16; with a null base it only counts.
class DeltaPieces {
 public:
  explicit DeltaPieces(float* base) : base_(base) {}
  float* take(int64_t n) {
    float* const piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += round_up(n, kDeltaLanes);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  float* base_;
  int64_t used_ = 0;
};

// Value head `head` of text `text`.
struct DeltaHead {
  int64_t text = 0, head = 0;
};

// Tokens [first, first + n) of a text; a state is before them unless they begin a document.
struct DeltaSpan {
  int64_t first = 0, n = 0;
  bool has_state = false;
};
// The chunk from token `first` on.
DeltaSpan delta_span(const GatedDeltaShape& shape, const GatedDeltaCall& call, int64_t text,
                     int64_t first);

// Matrices and numbers of one chunk. Transposed: [key_dim, 32], zeros behind the last token; pairs
// of tokens: [32, 32], zeros where j > i; values: [32, columns()].
struct DeltaChunk {
  DeltaChunk(DeltaPieces& pieces, const GatedDeltaShape& shape);

  int64_t columns() const { return round_up(shape.value_dim, kDeltaLanes); }
  int64_t state_elems() const { return shape.key_dim * columns(); }
  // q, k, beta, decays and products of pairs.
  void load(const GatedDeltaCall& call, const DeltaHead& at, const DeltaSpan& of);
  // v's rows, in `news`.
  void load_values(const In& v, const DeltaHead& at, float* rows) const;
  // `news` and `u` of the values in `news`, behind the state; nullptr: none.
  void solve(float* state) const;
  // The state behind the chunk in the place of that before it, if there was one.
  void pass_on(float* state) const;

  const GatedDeltaShape& shape;
  DeltaSpan span;
  float *q, *k, *k_kept;                // transposed; k_kept: k_j e^(G_last - G_j)
  float *inv_q, *inv_k;                 // 1 / lengths, of q without 1 / sqrt(key_dim)
  float *sums, *since, *behind, *beta;  // G, e^G, e^(G_last - G)
  float* decays;                        // D
  float* blocked;                       // - D (k k), zeros on the diagonal
  float* scores;                        // D (q k)
  float *news, *u;                      // N, U
  float* row;                           // of key_dim, and of columns()
  float passed = 1;                     // e^G_last
};

// 1 / sqrt(|x|^2 + 1e-6) of a row.
float inverse_length(const float* x, int64_t padded);
// The number x[i].
float delta_number(In x, int64_t i);
void put_delta_number(Out x, int64_t i, float value);
// y [n_columns, 32] of x's rows, 32 or fewer, zeros behind the last; x's rows are n_columns,
// rounded up, apart.
void transpose_delta(const float* x, const DeltaSpan& span, int64_t n_columns, float* y);

}  // namespace octet::cpu
