// Which tiles a block makes, and where a thread's pieces of a tile lie.
#pragma once

#include "backends/cuda/kernels/common/code_tile.cuh"

namespace octet::cuda {

inline constexpr int kBand = 8;
OCTET_HOST_DEVICE constexpr int tiles_of(int64_t n) {
  return static_cast<int>((n + kTile - 1) / kTile);
}

struct TileAt {
  int row, column;  // in tiles
};

// The tiles of a block: up through a band of at most eight, then across, so that what is read and
// what is written at one time both lie in long pieces. They begin at the end: what a pass before
// this one read last is still near. Fewer than 2^31 tiles.
// Args: cols, padded_rows.
class TileWalk {
 public:
  template <typename Args>
  __device__ __forceinline__ explicit TileWalk(const Args& a)
      : down_(tiles_of(a.padded_rows)), across_(tiles_of(a.cols)) {
    const int n_bands = (down_ + kBand - 1) / kBand;
    height_ = (down_ + n_bands - 1) / n_bands;
    at_ = split(n_bands * height_ * across_ - 1 - static_cast<int>(blockIdx.x));
    step_ = split(static_cast<int>(gridDim.x));
    seek();
  }
  __device__ __forceinline__ bool more() const { return at_.band >= 0; }
  __device__ __forceinline__ TileAt at() const { return {row(), at_.column}; }
  __device__ __forceinline__ void advance() {
    step();
    seek();
  }

 private:
  struct Split {
    int band, column, row;
  };
  __device__ __forceinline__ Split split(int i) const {
    const int in_band = across_ * height_, band = i / in_band, rest = i - band * in_band;
    return {band, rest / height_, rest % height_};
  }
  __device__ __forceinline__ int row() const { return at_.band * height_ + at_.row; }
  __device__ __forceinline__ void step() {
    at_.row -= step_.row;
    at_.column -= step_.column;
    at_.band -= step_.band;
    if (at_.row < 0) at_.row += height_, --at_.column;
    if (at_.column < 0) at_.column += across_, --at_.band;
  }
  // Bands of the same height may reach below the last tile.
  __device__ __forceinline__ void seek() {
    while (more() && row() >= down_) step();
  }

  int down_, across_, height_;
  Split at_, step_;
};

// A thread's place in all tiles: the row and the piece where it begins, and where
// that stands in a tile.
struct ThreadAt {
  int row = static_cast<int>(threadIdx.x) / kPieces;
  int piece = static_cast<int>(threadIdx.x) % kPieces;
  int slot = tile_slot(row, piece);
  TileReader reader;

  // Or they are made again for every tile.
  __device__ __forceinline__ void keep() {
    asm volatile("" : "+r"(row), "+r"(piece), "+r"(slot));
    reader.keep();
  }
  // Slot of row + 32 k: bit 5 of a row turns pieces by 4.
  __device__ __forceinline__ int slot_of(int k) const {
    static_assert(kRowsPerStep == 32);
    return (k % 2 == 0 ? slot : slot ^ 4) + k * kRowsPerStep * kPieces;
  }
};

// Places of a thread's pieces of a tile, counted in groups, in 32 bits.
template <bool kWhole>
struct PiecesPlace {
  uint32_t at;      // of the first
  int row, column;  // of the first
  int below;        // rows of the matrix below the first, at most 96
  uint32_t groups;  // of a row

  // Args: rows, cols.
  template <typename Args>
  __device__ __forceinline__ PiecesPlace(const Args& a, const TileAt& tile, const ThreadAt& thread)
      : row(tile.row * kTile + thread.row),
        column(tile.column * kPieces + thread.piece),
        below(kTile - kRowsPerStep),
        groups(static_cast<uint32_t>(a.cols) / kChunk) {
    if constexpr (!kWhole) {
      const int last = static_cast<int>(a.rows) - 1;
      row = min(row, last);
      column = min(column, static_cast<int>(groups) - 1);
      below = min(below, last - row);
    }
    at = static_cast<uint32_t>(row) * groups + static_cast<uint32_t>(column);
  }
  __device__ __forceinline__ int rows_to(int k) const {
    return kWhole ? k * kRowsPerStep : min(k * kRowsPerStep, below);
  }
  __device__ __forceinline__ uint32_t piece(int k) const {
    return at + static_cast<uint32_t>(rows_to(k)) * groups;
  }
};

}  // namespace octet::cuda
