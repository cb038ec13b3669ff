// The row kernels of attention, and what its two directions share: block sizes, packing, masks.
#pragma once

#include "backends/cpu/attention/attention.h"
#include "backends/cpu/gemm/tile_gemm.h"

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

// Rows whose queries see no keys but theirs: a sequence, or a document of one.
struct AttentionSpan {
  int64_t q_row = 0, kv_row = 0;  // the first, of all sequences
  int64_t q_len = 0, kv_len = 0;
  const int32_t* positions = nullptr;  // of its queries, over a cache
};

// Spec, checked, with its products' type and padded sizes.
struct AttentionShape {
  AttentionSpec spec;
  Dtype compute = Dtype::f32;
  int64_t q_block = 0, k_block = 0;
  int64_t depth = 0;    // head_size up to kTileDepth: as an inner dimension
  int64_t columns = 0;  // head_size up to kTileColumns: as columns of a product

  int64_t elem() const { return bytes_of(compute, 1); }
  int64_t n_q_blocks() const { return ceil_div(spec.q_len, q_block); }
  int64_t n_k_blocks(const AttentionSpan& span) const { return ceil_div(span.kv_len, k_block); }
  int64_t n_k_blocks() const { return ceil_div(spec.kv_len, k_block); }
  int64_t group() const { return spec.heads / spec.kv_heads; }
  int64_t pairs() const { return spec.batch * spec.kv_heads; }
  AttentionSpan sequence(int64_t index) const {
    return {index * spec.q_len, index * spec.kv_len, spec.q_len, spec.kv_len};
  }
  // How many keys of a span its query i sees, or would without a window.
  int64_t visible(const AttentionSpan& span, int64_t query) const {
    if (span.positions != nullptr)
      return std::clamp<int64_t>(int64_t{span.positions[query]} + 1, 0, span.kv_len);
    if (spec.mask == AttentionMask::none) return span.kv_len;
    return std::clamp<int64_t>(query + 1 + span.kv_len - span.q_len, 0, span.kv_len);
  }
  // The first key that it sees.
  int64_t first_visible(const AttentionSpan& span, int64_t query) const {
    return spec.window == 0 ? 0 : std::max<int64_t>(0, visible(span, query) - spec.window);
  }
  // The most keys that a query below `q_end` sees, and their blocks.
  int64_t most_visible(const AttentionSpan& span, int64_t q_end) const {
    if (span.positions == nullptr) return visible(span, q_end - 1);
    int64_t most = 0;
    for (int64_t query = 0; query < q_end; ++query) most = std::max(most, visible(span, query));
    return most;
  }
  int64_t visible_blocks(const AttentionSpan& span, int64_t q_end) const {
    return ceil_div(most_visible(span, std::min(q_end, span.q_len)), k_block);
  }
  // The first block of keys that a query in [q0, q_end) sees with a window.
  int64_t first_block(const AttentionSpan& span, int64_t q0, int64_t q_end) const {
    if (spec.window == 0) return 0;
    int64_t first = first_visible(span, q0);
    if (span.positions != nullptr) {
      for (int64_t query = q0 + 1; query < q_end; ++query)
        first = std::min(first, first_visible(span, query));
    }
    return first / k_block;
  }
  // The rows from `row` of a sequence on that are one document; the sequence where it has none.
  AttentionSpan document(const int32_t* doc_starts, int64_t index, int64_t row) const;
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
