// The row kernels of attention, and what its two directions share: block sizes, packing, masks.
#pragma once

#include "backends/cpu/attention/attention.h"
#include "backends/cpu/gemm/row_dot.h"
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

// s[i] = scale s[i] + bias[i].
struct BiasRow {
  float* s = nullptr;
  In bias = {};
  int64_t n = 0;
  float scale = 1;
};
void add_bias_row(const BiasRow& row);

// s[i] = cap tanh(scale s[i] / cap).
struct CapRow {
  float* s = nullptr;
  int64_t n = 0;
  float scale = 1, cap = 1;
};
void cap_row(const CapRow& row);

// y[i] = x[i] * factor.
void scale_row(const float* x, Out y, float factor, int64_t n);

// y[i] = sum_j p[j] x[j][i] for i < n, j < rows: one chain from zero, of steps or dots
// (gemm/row_dot.h); rows that an odd number lacks count as zeros.
struct WeightedRows {
  In p = {}, x = {};
  int64_t x_stride = 0, rows = 0, n = 0;
  DotChain chain = DotChain::steps;
  float* y = nullptr;
};
void sum_weighted_rows(const WeightedRows& sum);

// sum_i a[i] b[i].
float dot_row(In a, In b, int64_t n);

// One key against the queries [first, last) of a block: p = exp(score_scale s - lse), ds = p (dp -
// d) scale (1 - (inv_cap s)^2), and ds / scale in `unscaled` where it is wanted, without a cap;
// zeros elsewhere in [0, width). p may be s, ds or unscaled may be dp.
struct SoftmaxGradientRow {
  const float* s = nullptr;
  const float* dp = nullptr;
  const float* lse = nullptr;  // [width]
  const float* d = nullptr;    // [width]
  Out p = {}, ds = {};
  int64_t first = 0, last = 0, width = 0;
  float score_scale = 1, scale = 1;
  float* unscaled = nullptr;
  float inv_cap = 0;
};
void softmax_gradient_row(const SoftmaxGradientRow& row);

// Rows of queries and the keys that they alone see: a sequence, or a part of one.
struct AttentionSpan {
  int64_t q_row = 0, kv_row = 0;  // the first, of all sequences
  int64_t q_len = 0, kv_len = 0;
  int64_t shift = 0;                                 // query i stands at key i + shift of the span
  int64_t first_key = 0;                             // of the span, in its sequence
  const int32_t* positions = nullptr;                // of its queries, over a cache
  const int32_t *begins = nullptr, *ends = nullptr;  // of its queries, keys of the sequence

  bool has_ranges() const { return begins != nullptr || ends != nullptr; }
};

// [first, end)
struct KeyRange {
  int64_t first = 0, end = 0;
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
  // Elements of a row of queries, and of one of keys.
  int64_t q_stride() const { return spec.heads * spec.head_size; }
  int64_t k_stride() const { return spec.kv_heads * spec.head_size; }
  // One head of a row of x, which is a matrix as the queries' or as the keys'; row: of all
  // sequences.
  In query(const void* x, int64_t row, int64_t head) const {
    return offset(In{x, spec.dtype}, row * q_stride() + head * spec.head_size);
  }
  Out query(void* x, int64_t row, int64_t head) const {
    return offset(Out{x, spec.dtype}, row * q_stride() + head * spec.head_size);
  }
  In key(const void* x, int64_t row, int64_t head) const {
    return offset(In{x, spec.dtype}, row * k_stride() + head * spec.head_size);
  }
  Out key(void* x, int64_t row, int64_t head) const {
    return offset(Out{x, spec.dtype}, row * k_stride() + head * spec.head_size);
  }
  int64_t pairs() const { return spec.batch * spec.kv_heads; }
  // With the keys' ranges that stand in the arguments of either direction.
  template <typename Args>
  AttentionSpan sequence(const Args& args, int64_t index) const {
    const int64_t q_row = index * spec.q_len;
    return {.q_row = q_row,
            .kv_row = index * spec.kv_len,
            .q_len = spec.q_len,
            .kv_len = spec.kv_len,
            .shift = spec.kv_len - spec.q_len,
            .begins = args.key_begins == nullptr ? nullptr : args.key_begins + q_row,
            .ends = args.key_ends == nullptr ? nullptr : args.key_ends + q_row};
  }
  // The keys of a span that its query sees; none: [0, 0).
  KeyRange seen(const AttentionSpan& span, int64_t query) const {
    const bool is_causal = spec.mask == AttentionMask::causal;
    const int64_t place = span.positions != nullptr ? span.positions[query] : query + span.shift;
    const int64_t reach = is_causal ? 1 : spec.window > 0 ? spec.window : span.kv_len - place;
    KeyRange keys{0, std::clamp<int64_t>(place + reach, 0, span.kv_len)};
    if (spec.window > 0)
      keys.first = std::max<int64_t>(0, (is_causal ? keys.end : place + 1) - spec.window);
    if (span.begins != nullptr)
      keys.first = std::max<int64_t>(keys.first, span.begins[query] - span.first_key);
    if (span.ends != nullptr)
      keys.end = std::min<int64_t>(keys.end, span.ends[query] - span.first_key);
    return keys.first < keys.end ? keys : KeyRange{};
  }
  // The blocks of keys that queries [q0, q_end) of a span see.
  KeyRange blocks(const AttentionSpan& span, int64_t q0, int64_t q_end) const;
  // The rows from `row` of a sequence on whose keys no other rows see.
  AttentionSpan part(const AttentionSpan& sequence, int64_t row) const;
  // Start of a query's bias, of a head of a sequence; q_row: of all sequences.
  In bias_row(const void* bias, int64_t q_row, int64_t head) const {
    return offset(In{bias, spec.bias->dtype}, bias_at(q_row, head));
  }
  int64_t bias_at(int64_t q_row, int64_t head) const {
    const AttentionBias& b = *spec.bias;
    const int64_t entry = b.batch == 1 ? 0 : q_row / spec.q_len;
    const int64_t query = b.q_len == 1 ? 0 : q_row % spec.q_len;
    return ((entry * b.heads + (b.heads == 1 ? 0 : head)) * b.q_len + query) * spec.kv_len;
  }
  // Factor of a product of a query and a key in the softmax.
  float score_scale() const { return spec.bias || spec.softcap > 0 ? 1.0f : spec.scale; }
};
AttentionShape checked_shape(const AttentionSpec& spec);

// Packs all panels of a [k, n] operand (rows and columns beyond k, n are zeros).
struct Extent {
  int64_t k = 0, n = 0;
};
void pack_operand(const MatrixIn& b, const TileGemm& product, Extent extent, void* dst);

}  // namespace octet::cpu
