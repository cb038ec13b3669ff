// Moves matrices into the layouts that the tile products read: transposes, dense rows and panels.
//
// Panels of op(B) [K, N]: for each panel of `width` columns, for each group of `interleave` rows,
// the columns of the group side by side. Element (k, n) stands at
//   panel(n / width) + ((k / interleave) * width + n % width) * interleave + k % interleave
// The last panel and the last rows are padded with zeros to whole panels and to k_padded rows.
#pragma once

#include <cstddef>

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

enum class Transpose { no, yes };

// A row-major matrix in storage: rows at `stride` elements; `transpose` tells that the operand is
// its transpose.
struct MatrixIn {
  In data = {};
  int64_t stride = 0;
  Transpose transpose = Transpose::no;
};

struct PanelLayout {
  int64_t width = 64;
  int64_t interleave = 1;  // 2 for bf16
  int64_t k_padded = 0;
  Dtype dtype = Dtype::f32;
  int64_t panel_elems() const { return width * k_padded; }
};

// The part of op(B) that one call packs; k_begin is a multiple of 32.
struct PanelRange {
  int64_t k_begin = 0, k_end = 0, n_begin = 0, n_end = 0;
};

// Packs columns [n_begin, n_end) (at most one panel's) and rows [k_begin, k_end) into the panel at
// dst, padding columns to the panel's width and rows up to k_padded where k_end is the operand's
// last row (`last`).
void pack_panel(const MatrixIn& b, const PanelLayout& layout, const PanelRange& range, bool last,
                void* dst);

// dst[r - row_begin][c] = op(A)[r][c] for c < cols, 0 up to cols_padded, in dst's type; rows dense
// at cols_padded.
struct RowRange {
  int64_t row_begin = 0, row_end = 0, cols = 0, cols_padded = 0;
};
void pack_rows(const MatrixIn& a, const RowRange& range, Out dst);

// dst[c][r] = src[r][c]; elements of 1, 2 or 4 bytes; strides in elements. src and dst do
// not overlap.
struct TransposeArgs {
  const void* src = nullptr;
  void* dst = nullptr;
  int64_t src_stride = 0, dst_stride = 0;
  int64_t rows = 0, cols = 0;
  int elem_bytes = 4;
};
void transpose_block(const TransposeArgs& args);

}  // namespace octet::cpu
