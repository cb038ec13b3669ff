// Windows of pictures [n, height, width, channels]: ir/ops/unfold.cpp has the equations. Every
// window is one tile's, and every pixel of a fold: same bits for any number of threads.
#pragma once

#include "backends/cpu/common/operand.h"
#include "ir/picture_attrs.h"

namespace octet::cpu {

struct Windows {
  UnfoldAttrs attrs;
  int64_t n_pictures = 0, channels = 0;
};

// y [n rows columns, window channels] of elements of `bytes` bytes, moved as they are; zeros
// outside.
void unfold(const Windows& windows, const void* x, void* y, int64_t bytes, ThreadPool& pool);

// The same of one picture after the other on the calling thread.
void unfold_pictures(const Windows& windows, const void* x, void* y, int64_t bytes);
void fold_pictures(const Windows& windows, In y, Out x);

// x [n, height, width, channels] of windows: f32 sums in the order of places, rounded once.
void fold(const Windows& windows, In y, Out x, ThreadPool& pool);

}  // namespace octet::cpu
