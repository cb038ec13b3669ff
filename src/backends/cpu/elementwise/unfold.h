// Windows of pictures [n, height, width, channels]: ir/ops/unfold.cpp has the equations. Every
// window is one tile's, and every pixel of a fold: same bits for any number of threads.
#pragma once

#include <vector>

#include "backends/cpu/common/operand.h"
#include "ir/picture_attrs.h"

namespace octet::cpu {

struct Windows {
  UnfoldAttrs attrs;
  int64_t n_pictures = 0, channels = 0;
  int64_t window_elems() const { return attrs.window[0] * attrs.window[1] * channels; }
};

// Places among [0, n), of which place i lies at begin + step i, that lie in [0, extent).
struct Inside {
  int64_t first, end;
};
Inside places_inside(int64_t begin, int64_t step, int64_t n, int64_t extent);

// Rows of so many bytes that a thread takes at a time, at least 1.
int64_t rows_of_tile(int64_t row_bytes);

// y [n rows columns, window channels] of elements of `bytes` bytes, moved as they are; zeros
// outside.
void unfold(const Windows& windows, const void* x, void* y, int64_t bytes, ThreadPool& pool);

// Which blocks of a picture's windows are added to each of its pixels: of pixel i those that begin
// at elements blocks[begins[i]], ... up to begins[i + 1]. Made once for a shape, whose windows lie
// row_elems elements apart (0: dense).
struct FoldedBlocks {
  std::vector<int64_t> blocks, begins;
  int64_t row_elems = 0;
};
FoldedBlocks folded_blocks(const Windows& windows, int64_t row_elems = 0);

// x [n, height, width, channels] of windows: f32 sums in the order of places, rounded once.
void fold(const Windows& windows, const FoldedBlocks& blocks, In y, Out x, ThreadPool& pool);

// The same of one picture after the other on the calling thread; windows may lie `row_elems`
// elements apart, with zeros between them.
void unfold_pictures(const Windows& windows, In x, void* y, int64_t row_elems);
void fold_pictures(const Windows& windows, const FoldedBlocks& blocks, In y, Out x);

}  // namespace octet::cpu
