// Shared parts of the quantizers in groups and blocks of rows and columns.
#pragma once

#include "backends/cuda/kernels/quantize/quantize.cuh"

namespace octet::cuda {

struct GroupTask {
  const void* a = nullptr;
  const void* b = nullptr;  // nullptr: nothing is added
  void* y = nullptr;        // the sum, which may be a or b; without codes what they stand for
  uint8_t* codes = nullptr;
  void* scales = nullptr;  // nullptr: not wanted
  int64_t rows = 0, cols = 0, block_rows = 1, block_cols = 1;
  ScaleMaker maker = {};
  Dtype da = Dtype::bf16, db = Dtype::bf16, dy = Dtype::bf16;
  Rounding rounding = Rounding::near;
  Dtype source = Dtype::f32;
  // Fields of launch_groups.
  bool in_eights = false;  // whole ones, at addresses of load_raw8
  int lanes_log2 = 0;      // of the threads that share a group of 8 << lanes_log2
  int64_t panel_cols = 0, panels_across = 0, panel_scales = 0, scales_across = 0;
  int width = 1, step = 1;  // threads across a panel, and down
};

// Codes of bf16 in e4m3 or e5m2, in eights, with blocks of kTileSize rows and as many columns or
// one.
void launch_tiles(GroupTask t, Dtype codes, cudaStream_t stream);

}  // namespace octet::cuda
