// The optimizer's step for many tensors in one launch: a list of rows in the device's memory, whose
// tiles the warps of one grid share. The kernels, their order and their bits are those of
// kernels/update.h, one tensor at a time.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_keys.h"

namespace octet::cuda {

// A tensor, or a slice of one too long for one row. On the device begin_step (adamw_begin.cu)
// fills in what changes from step to step.
struct alignas(16) UpdateRow {
  AdamwCall call;  // without call.amax
  RoundKeys keys;  // of call.p.stream
  int32_t weight = 0;
  uint32_t index = 0, first_tile = 0, end_tile = 0;  // among those of its kind
  int64_t first = 0;                                 // the weight's element that is element 0 here
};
static_assert(sizeof(UpdateRow) <= 32 * 16);  // a warp copies one at once

// Rows of one kind; first_tile repeats theirs.
struct UpdateRows {
  const UpdateRow* rows;
  const uint32_t* first_tile;
  uint32_t n_rows, n_tiles;
  const uint8_t* found_nonfinite;  // 1: nothing is changed
};

// How a row is cut: kExpandedTile elements for launch_expanded_many, a group for launch_any_many.
inline constexpr int64_t kExpandedTile = 512;
inline constexpr int64_t kMostRowElements = int64_t{1} << 31;

// Gradients whose squares are summed as global_norm does; chunks of kNormChunk elements.
struct GradientList {
  const void* const* address;
  const int64_t* n;
  const uint8_t* dtype;
  const uint32_t* first_chunk;  // [n_gradients]
  uint32_t n_gradients;
  double* sums;     // one a chunk
  double* squares;  // result
};
void launch_squares(const GradientList& list, uint32_t n_chunks, cudaStream_t stream);

// Elements [first, first + n), at the places where these lie; first is a multiple of 128.
AdamwCall slice_of(const AdamwCall& call, int64_t first, int64_t n);

// All rows have this store and gradient (f32 or bf16), and is_aligned and takes_expanded.
void launch_expanded_many(const UpdateRows& rows, WeightStore store, Dtype gradient, int n_sm,
                          cudaStream_t stream);
// Any rows.
void launch_any_many(const UpdateRows& rows, int n_sm, cudaStream_t stream);

}  // namespace octet::cuda
