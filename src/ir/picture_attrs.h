// Attributes of ops on pictures, and of those on texts that a cache or a state keeps; the rest:
// attrs.h.
#pragma once

#include "ir/primitive_attrs.h"

namespace octet {

// unfold, fold: of rows and of columns each. picture: its extents; window: places of a window, so
// far apart as dilation says; windows begin `stride` apart in the picture with `low` pixels of
// zeros before it and `high` behind.
struct UnfoldAttrs {
  Shape picture, window, stride, dilation, low, high;
  OCTET_ATTRS(UnfoldAttrs) {
    f("picture", s.picture), f("window", s.window), f("stride", s.stride);
    f("dilation", s.dilation), f("low", s.low), f("high", s.high);
  }
  // How many windows stand along an axis.
  int64_t n_windows(size_t axis) const {
    const int64_t extent = dilation[axis] * (window[axis] - 1) + 1;
    return (picture[axis] + low[axis] + high[axis] - extent) / stride[axis] + 1;
  }
};
// convolution, depthwise: of these windows, as which of a linear's three products.
struct ConvolutionAttrs {
  UnfoldAttrs windows;
  GemmRole role = GemmRole::forward;
  OCTET_ATTRS(ConvolutionAttrs) { UnfoldAttrs::fields(s.windows, f), f("role", s.role); }
};
// The order in which depthwise adds up a weight's gradient: ir/ops/unfold.cpp.
inline constexpr int64_t kDepthwiseRows = 8, kDepthwiseSums = 32;
// batch_norm: own: by the mean and variance of the batch, of which running ones take the share
// `momentum`; else by those that are given.
struct BatchNormAttrs {
  double eps = 1e-5, momentum = 0.1;
  bool own = true;
  OCTET_ATTRS(BatchNormAttrs) { f("eps", s.eps), f("momentum", s.momentum), f("own", s.own); }
};
// cache_write: so many entries of so many rows.
struct CacheAttrs {
  int64_t batch = 1, capacity = 1;
  OCTET_ATTRS(CacheAttrs) { f("batch", s.batch), f("capacity", s.capacity); }
};
// gated_delta and its gradient: rows are so many texts, queries and keys have so many heads.
struct GatedDeltaAttrs {
  int64_t batch = 1, key_heads = 1;
  OCTET_ATTRS(GatedDeltaAttrs) { f("batch", s.batch), f("key_heads", s.key_heads); }
};

}  // namespace octet
