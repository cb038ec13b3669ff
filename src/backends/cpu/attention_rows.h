// The row kernels of attention, and what its two directions share: block sizes, packing, masks.
#pragma once

#include "backends/cpu/attention.h"
#include "backends/cpu/tile_gemm.h"

namespace octet::cpu {

// The largest of s[0..n); -Inf for n = 0; NaN does not count (it shows in the sum).
float row_max(const float* s, int64_t n);

// p[i] = exp(scale s[i] - shift) for i < n, 0 for n <= i < n_padded; returns the sum before
// rounding. p may be s.
struct SoftmaxRow {
  const float* s = nullptr;
  Out p = {};
  int64_t n = 0, n_padded = 0;
  float scale = 1, shift = 0;
};
float softmax_row(const SoftmaxRow& row);

// y[i] = x[i] * factor.
void scale_row(const float* x, Out y, float factor, int64_t n);

// sum_i a[i] b[i].
float dot_row(In a, In b, int64_t n);

// One key against the queries [first, last) of a block: p = exp(scale s - lse), ds = p (dp - d)
// scale; zeros elsewhere in [0, width). p may be s, ds may be dp.
struct SoftmaxGradientRow {
  const float* s = nullptr;
  const float* dp = nullptr;
  const float* lse = nullptr;  // [width]
  const float* d = nullptr;    // [width]
  Out p = {}, ds = {};
  int64_t first = 0, last = 0, width = 0;
  float scale = 1;
};
void softmax_gradient_row(const SoftmaxGradientRow& row);

// Spec, checked, with its products' type and padded sizes.
struct AttentionShape {
  AttentionSpec spec;
  Dtype compute = Dtype::f32;
  int64_t q_block = 0, k_block = 0;
  int64_t depth = 0;    // head_size up to kTileDepth: as an inner dimension
  int64_t columns = 0;  // head_size up to kTileColumns: as columns of a product

  int elem() const { return dtype_bytes(compute); }
  int64_t n_q_blocks() const { return ceil_div(spec.q_len, q_block); }
  int64_t n_k_blocks() const { return ceil_div(spec.kv_len, k_block); }
  int64_t group() const { return spec.heads / spec.kv_heads; }
  int64_t pairs() const { return spec.batch * spec.kv_heads; }
  // How many keys query i sees.
  int64_t visible(int64_t query) const {
    if (spec.mask == AttentionMask::none) return spec.kv_len;
    return std::clamp<int64_t>(query + 1 + spec.kv_len - spec.q_len, 0, spec.kv_len);
  }
  // Blocks of keys that some query below `q_end` sees.
  int64_t visible_blocks(int64_t q_end) const {
    return ceil_div(visible(std::min(q_end, spec.q_len) - 1), k_block);
  }
};
AttentionShape checked_shape(const AttentionSpec& spec);

// Rows of one head of one sequence.
In head_rows(HeadsIn x, const AttentionSpec& spec, int64_t row, int64_t head);
Out head_rows(HeadsOut x, const AttentionSpec& spec, int64_t row, int64_t head);

// Packs all panels of a [k, n] operand (rows and columns beyond k, n are zeros).
struct Extent {
  int64_t k = 0, n = 0;
};
void pack_operand(const MatrixIn& b, const TileGemm& product, Extent extent, void* dst);

}  // namespace octet::cpu
