// Windows of pictures [n, height, width, channels] and batch norm: ir/ops/unfold.cpp and
// ir/ops/batch_norm.cpp have the equations.
#pragma once

#include <cstdint>

#include "backends/cuda/params/rows.h"
#include "formats/dtype.h"

namespace octet::cuda {

// One axis of pictures and windows.
struct WindowAxis {
  int32_t picture = 1, window = 1, stride = 1, dilation = 1, low = 0, n_windows = 1;
};

// unfold: elements of `bytes` bytes, moved as they are, zeros outside. fold: f32, bf16, fp16; a
// thread adds up the windows of its pixels in the order of places, in f32, and rounds once.
struct UnfoldParams {
  int64_t n_pictures = 0, channels = 0;
  WindowAxis rows, columns;
  int32_t bytes = 2;
  Dtype x = Dtype::bf16, y = Dtype::bf16;
  int8_t reserved[2] = {};
};

// depthwise: of f32, bf16, fp16; a thread adds up the places of its pixels in their order, or from
// the last to the first, where is_gradient. depthwise_weight: a thread adds up a row of windows, a
// block kDepthwiseBlockRows rows, and of these sums in the scratch kDepthwiseJoinedSums threads
// each column in double: the order of ir/ops/unfold.cpp. first, second, result: the op's operands
// and its result.
struct DepthwiseParams {
  int64_t n_pictures = 0, channels = 0;
  WindowAxis rows, columns;
  Dtype first = Dtype::bf16, second = Dtype::bf16, result = Dtype::bf16;
  bool is_gradient = false;
  int8_t reserved[4] = {};
};
inline constexpr int64_t kDepthwiseBlockRows = 8, kDepthwiseJoinedSums = 32;
// Weights of a block's channels, of which eight must fit.
inline constexpr int64_t kDepthwiseSharedFloats = 12288;
constexpr int64_t depthwise_scratch_bytes(const DepthwiseParams& p) {
  const int64_t n_rows = p.n_pictures * p.rows.n_windows;
  const int64_t n_blocks = (n_rows + kDepthwiseBlockRows - 1) / kDepthwiseBlockRows;
  return 4 * n_blocks * p.rows.window * p.columns.window * p.channels;
}

// batch_norm and its gradient over [rows, cols] of f32, bf16, fp16. Sums over rows: of a block's
// rows by threads and then over its threads in a fixed order, in f32 about the block's first row;
// over blocks in double, a warp a column, in a fixed order. own: by x's statistics; else by those
// of the operands mean and variance. Any result may be absent. Scratch: batch_norm_scratch_bytes.
struct BatchNormParams {
  int64_t rows = 0, cols = 0;
  double momentum = 0.1, variance_share = 0.1;  // the second: momentum rows / (rows - 1)
  float eps = 1e-5f;
  UnquantizedArg x, weight, bias, mean, variance;                      // operands
  UnquantizedArg y, own_mean, own_variance, next_mean, next_variance;  // results
  bool own = true;
  int8_t reserved[7] = {};
};
struct BatchNormGradParams {
  int64_t rows = 0, cols = 0;
  float eps = 1e-5f;
  UnquantizedArg dy, x, mean, variance, weight;  // operands; own statistics
  UnquantizedArg dx, dw, db;                     // results
  int8_t reserved[4] = {};
};

// A block has up to kNormLanes eights, or single columns, of a row beside each other.
inline constexpr int64_t kNormLanes = 32, kNormThreads = 256, kNormBlocks = 264;
struct NormGrid {
  int64_t lanes = 1, row_blocks = 1, column_blocks = 1, rows_of_block = 1;
};
constexpr NormGrid norm_grid(int64_t rows, int64_t cols, int64_t width) {
  const int64_t n_lanes = (cols + width - 1) / width;
  NormGrid grid;
  grid.lanes = n_lanes < kNormLanes ? n_lanes : kNormLanes;
  grid.column_blocks = (n_lanes + grid.lanes - 1) / grid.lanes;
  const int64_t beside = kNormThreads / grid.lanes;
  const int64_t most = kNormBlocks / grid.column_blocks;
  grid.row_blocks = row_blocks(rows / (4 * beside), most < 1 ? 1 : most);
  grid.rows_of_block = (rows + grid.row_blocks - 1) / grid.row_blocks;
  grid.row_blocks = (rows + grid.rows_of_block - 1) / grid.rows_of_block;
  return grid;
}
// f32: two sums of each block and column, then four numbers of each column.
constexpr int64_t batch_norm_scratch_bytes(int64_t cols) {
  return 4 * (2 * kNormBlocks + 4) * cols;
}

}  // namespace octet::cuda
