// A warp's way through the rows of a launch: the row of its tile, and that of the next, as copies
// in shared memory, which the whole warp reads at once.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_many.h"

namespace octet::cuda {

// The last i below n with first[i] <= x, where first[0] is. By the whole warp, a step for each
// factor of 32.
__device__ __forceinline__ uint32_t last_reached(const uint32_t* first, uint32_t n, uint32_t x) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t at = 0;
  while (n > 1) {
    const uint32_t step = (n + 31) / 32, probe = lane * step;
    const bool is_reached = probe < n && first[at + probe] <= x;
    const uint32_t last = __popc(__ballot_sync(~0u, is_reached)) - 1;
    at += last * step;
    n = min(step, n - last * step);
  }
  return at;
}

// Two copies by turns, so that a row can be asked for while its predecessor is still in work.
// Beside each, what the kernel makes of it once.
template <typename Beside>
class RowWalk {
 public:
  struct alignas(16) Slot {
    UpdateRow row;
    Beside beside;
  };
  static constexpr int kBytes = 2 * static_cast<int>(sizeof(Slot));  // of a warp

  // memory: kBytes of the warp, shared.
  __device__ __forceinline__ explicit RowWalk(char* memory) : at_(reinterpret_cast<Slot*>(memory)) {
    if (threadIdx.x % 32 == 0) at_->row.index = at_->row.end_tile = 0;
    __syncwarp();
  }

  // To a tile that is not before the last one. Returns whether the row is another; the copy of the
  // one before stays until the next call that returns true.
  __device__ __forceinline__ bool go(const UpdateRows& list, uint32_t tile) {
    if (tile < at_->row.end_tile) return false;
    const uint32_t from = at_->row.index;
    const uint32_t index = from + last_reached(list.first_tile + from, list.n_rows - from, tile);
    at_ += is_second_ ? -1 : 1;
    is_second_ = !is_second_;
    constexpr int kPieces = sizeof(UpdateRow) / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncwarp();
    if (lane < kPieces) {
      reinterpret_cast<uint4*>(&at_->row)[lane] =
          reinterpret_cast<const uint4*>(list.rows + index)[lane];
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ Slot& slot() const { return *at_; }

 private:
  Slot* at_;
  bool is_second_ = false;
};

}  // namespace octet::cuda
