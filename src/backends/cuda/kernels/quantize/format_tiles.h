// How warps walk a matrix whose tiles have a scale each. Host and device.
#pragma once

#include <cstdint>

#include "base/integer.h"
#include "base/philox.h"

namespace octet::cuda {

// Elements [first, first + n) of one row of one tile.
struct TileSegment {
  int64_t first, n, tile;
};

// A tile's row is cut into pieces, so that few tiles are many segments; every element lies in one
// segment. Segments of tiles at the right edge may be empty.
struct TileWalk {
  static constexpr int64_t kPiece = 1024;

  int64_t rows, cols, tile_rows, tile_cols, grid_cols, n_pieces;

  OCTET_HOST_DEVICE int64_t n_segments() const { return rows * grid_cols * n_pieces; }

  OCTET_HOST_DEVICE TileSegment segment(int64_t index) const {
    const int64_t tile_row = index / n_pieces, piece = index - tile_row * n_pieces;
    const int64_t row = tile_row / grid_cols, tile_col = tile_row - row * grid_cols;
    const int64_t left = tile_col * tile_cols;
    const int64_t begin = left + piece * kPiece;
    const int64_t right = left + tile_cols < cols ? left + tile_cols : cols;
    const int64_t end = begin + kPiece < right ? begin + kPiece : right;
    return {row * cols + begin, end > begin ? end - begin : 0,
            row / tile_rows * grid_cols + tile_col};
  }
};

// Tiles of at least 1 x 1.
inline TileWalk tile_walk(int64_t rows, int64_t cols, int64_t tile_rows, int64_t tile_cols) {
  const int64_t width = tile_cols < cols ? tile_cols : cols;
  if (rows == 0 || cols == 0) return {0, 0, 1, 1, 0, 1};
  return {rows, cols, tile_rows, width, ceil_div(cols, width), ceil_div(width, TileWalk::kPiece)};
}

}  // namespace octet::cuda
