// Loops of the quantizing kernels over tiles of a matrix that a source makes span by span:
//
//   In source(span, buffer)              the span in f32 or bf16, in `buffer` or elsewhere
//   int64_t source.span_cols(want)       columns that it makes at once
//   bool source.fused(span, buffer, output)    not everywhere: fused_spans.h
// Tiles depend on the shape alone: same results for any number of threads.
#pragma once

#include <cmath>
#include <cstring>

#include "backends/cpu/elementwise/fused_spans.h"
#include "backends/cpu/elementwise/quantized_matrix.h"
#include "backends/cpu/quantize/quantize.h"

namespace octet::cpu {

inline constexpr int64_t kSpanCols = 1024;  // of a span along a row: a few of them lie in L1
inline constexpr int64_t kPanelCols = 256;  // of a span that is transposed
inline constexpr int64_t kPanelTile = 256;  // rows of a tile of transposed codes
inline constexpr int64_t kSpanBuffers = 3;

// The parts of the scratch that the caller provides (quantize_scratch).
class TileScratch {
 public:
  TileScratch(float* data, RowShape shape, int64_t group)
      : data_(data),
        rows_(round_up(shape.rows, 16)),
        span_(capped(kSpanCols, shape, group)),
        spans_(std::max(kSpanBuffers * span_, round_up(shape.cols, 16))),
        panel_(kPanelRows * capped(kPanelCols, shape, group) / int64_t{sizeof(float)}) {}
  int64_t n_floats(int n_threads) const { return 3 * rows_ + n_threads * per_thread(); }

  float* row_values() const { return data_; }               // one per row
  float* tile_values() const { return data_ + rows_; }      // one per tile of rows
  float* mean_values() const { return data_ + 2 * rows_; }  // one per row
  float* buffer(int thread) const { return data_ + 3 * rows_ + thread * per_thread(); }
  int64_t span() const { return span_; }  // floats of one of a thread's kSpanBuffers
  uint8_t* panel(int thread) const { return reinterpret_cast<uint8_t*>(buffer(thread) + spans_); }

 private:
  static int64_t capped(int64_t want, RowShape shape, int64_t group) {
    return round_up(std::min(group_chunk(group, want), std::max<int64_t>(shape.cols, 1)), 16);
  }
  int64_t per_thread() const { return round_up(spans_ + panel_, 16); }
  float* data_;
  int64_t rows_, span_, spans_, panel_;
};

// fn(row, thread, tile) for every row.
template <typename Fn>
void for_rows(RowShape shape, ThreadPool& pool, Fn&& fn) {
  const int64_t tile_rows = std::max<int64_t>(1, kBlockElems / std::max<int64_t>(1, shape.cols));
  for_blocks(pool, shape.rows, tile_rows, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t r = begin; r < end; ++r) fn(r, thread, begin / tile_rows);
  });
}

// fn(span, thread, tile) for every span of every row.
template <typename Source, typename Fn>
void for_places(const Source& source, RowShape shape, ThreadPool& pool, Fn&& fn) {
  const int64_t width = source.span_cols(kSpanCols);
  for_rows(shape, pool, [&](int64_t r, int thread, int64_t tile) {
    for (int64_t c = 0; c < shape.cols; c += width) {
      fn(RowSpan{r, c, std::min(width, shape.cols - c), shape.cols}, thread, tile);
    }
  });
}

// fn(span, x, thread, tile) for every span of every row.
template <typename Source, typename Fn>
void for_spans(const Source& source, RowShape shape, const TileScratch& scratch, ThreadPool& pool,
               Fn&& fn) {
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t tile) {
    fn(span, source(span, scratch.buffer(thread)), thread, tile);
  });
}

// In one go, where the source can do that.
template <typename Source>
bool write_fused(const Source& source, const RowSpan& span, float* buffer,
                 const SpanOutput& output) {
  if constexpr (requires { source.fused(span, buffer, output); }) {
    return source.fused(span, buffer, output);
  }
  return false;
}

template <typename Source>
float span_amax(const Source& source, const RowSpan& span, float* buffer) {
  float amax = 0;
  if (write_fused(source, span, buffer, {.amax = &amax})) return amax;
  return signed_amax(source(span, buffer), span.n);
}

struct SpanEncoder {
  Codec codec;
  TensorCodes out;
  explicit SpanEncoder(const TensorCodes& wanted) : codec(simd_codec(wanted.format)), out(wanted) {}
  template <typename Source>
  void operator()(const Source& source, const RowSpan& span, float* buffer, uint8_t* codes) const {
    const SpanOutput output{.codes = codes, .format = out.format, .inv_scale = 1.0f / out.scale};
    if (out.limit == 0 && write_fused(source, span, buffer, output)) return;
    encode_span(codec, source(span, buffer), span.n, {output.inv_scale, out.limit}, codes);
  }
};

// max(|a|, |b|), negative where a or b is: the join of two signed_amax.
inline float join_amax(float a, float b) {
  const float top = std::max(std::abs(a), std::abs(b));
  return std::signbit(a) || std::signbit(b) ? -top : top;
}

template <typename Source>
float amax_of_spans(const Source& source, RowShape shape, const TileScratch& scratch,
                    ThreadPool& pool) {
  float* const tiles = scratch.tile_values();
  std::fill(tiles, tiles + shape.rows, 0.0f);
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t tile) {
    const float amax = span_amax(source, span, scratch.buffer(thread));
    tiles[tile] = join_amax(tiles[tile], amax);
  });
  float all = 0.0f;
  for (int64_t i = 0; i < shape.rows; ++i) all = join_amax(all, tiles[i]);
  return all;
}

template <typename Source>
void encode_spans(const Source& source, const TensorCodes& out, RowShape shape,
                  const TileScratch& scratch, ThreadPool& pool) {
  const SpanEncoder encode(out);
  for_places(source, shape, pool, [&](const RowSpan& span, int thread, int64_t) {
    encode(source, span, scratch.buffer(thread), out.rows + span.row * span.cols + span.col);
  });
}

// [rows, cols] -> [cols, padded rows], and the codes by row too where they are wanted.
template <typename Source>
void encode_panels(const Source& source, const TensorCodes& out, RowShape shape,
                   const TileScratch& scratch, ThreadPool& pool) {
  const SpanEncoder encode(out);
  const int64_t width = source.span_cols(kPanelCols);
  const int64_t n_across = ceil_div(shape.cols, width);
  const int64_t n_down = ceil_div(out.padded_rows, kPanelTile);
  const auto encode_row = [&](const RowSpan& span, uint8_t* codes, int thread) {
    if (span.row >= shape.rows) {
      std::memset(codes, out.zero_code, static_cast<size_t>(span.n));
      return;
    }
    encode(source, span, scratch.buffer(thread), codes);
    uint8_t* const row = out.rows == nullptr ? nullptr : out.rows + span.row * span.cols + span.col;
    if (row != nullptr) std::memcpy(row, codes, static_cast<size_t>(span.n));
  };
  for_tiles(pool, n_across * n_down, [&](int64_t tile, int thread) {
    const int64_t begin = tile / n_across * kPanelTile;
    const int64_t end = std::min(out.padded_rows, begin + kPanelTile);
    const int64_t c = tile % n_across * width;
    const int64_t n = std::min(width, shape.cols - c), stride = round_up(n, 16);
    uint8_t* const panel = scratch.panel(thread);
    for (int64_t r = begin; r < end; r += kPanelRows) {
      const int64_t n_rows = std::min(kPanelRows, end - r);
      for (int64_t i = 0; i < n_rows; ++i) {
        encode_row({r + i, c, n, shape.cols}, panel + i * stride, thread);
      }
      transpose_codes({panel, stride, out.transposed + c * out.padded_rows + r, out.padded_rows},
                      n_rows, n);
    }
  });
}

template <typename Source>
void encode_tensor(const Source& source, const TensorCodes& out, RowShape shape,
                   const TileScratch& scratch, ThreadPool& pool) {
  const bool by_row = out.transposed == nullptr;
  return by_row ? encode_spans(source, out, shape, scratch, pool)
                : encode_panels(source, out, shape, scratch, pool);
}

template <typename Source>
void encode_groups(const Source& source, const GroupCodes& out, RowShape shape,
                   const TileScratch& scratch, ThreadPool& pool) {
  const Codec codec = simd_codec(out.format);
  const int64_t groups_per_row = ceil_div(shape.cols, out.group);
  for_spans(source, shape, scratch, pool, [&](const RowSpan& span, In x, int thread, int64_t) {
    GroupCodes place = out;
    place.codes += span.row * span.cols + span.col;
    place.scales += span.row * groups_per_row + span.col / out.group;
    if (fused_groups(x, span.n, place)) return;
    float factors[kSpanCols];
    float* const values = scratch.buffer(thread);
    if (x.data != values) convert_span(x, span.n, {values, Dtype::f32});
    group_amax(values, span.n, out.group, factors);
    group_scales(factors, ceil_div(span.n, out.group), out.target, place.scales);
    scale_groups(values, span.n, out.group, factors);
    codec.encode_f32(values, static_cast<size_t>(span.n), 1.0f, place.codes);
  });
}

}  // namespace octet::cpu
