// How codes are transposed: tiles of 128 x 128 pass through shared memory.
//
// A tile holds a row's 128 codes in 8 pieces of 16 bytes; piece q of row r stands at q ^ (bits 0, 4
// and 5 of r), so that neither the writes of whole pieces nor the reads of one piece of eight rows
// (2 q + b, 16 rows apart for each q) meet in a bank.
#pragma once

#include "backends/cuda/kernels/common/layer.cuh"

namespace octet::cuda {

inline constexpr int kTile = kCodeTile;
inline constexpr int kTileThreads = 256;
inline constexpr int kPieces = kTile / kChunk;                           // of a row of the tile
inline constexpr int kPiecesPerThread = kTile * kPieces / kTileThreads;  // 4
inline constexpr int kRowsPerStep = kTileThreads / kPieces;              // 32

// Slot of a piece, in pieces.
__device__ __forceinline__ int tile_slot(int row, int piece) {
  return row * kPieces + (piece ^ ((row & 1) | ((row >> 3) & 6)));
}

// Transposes four blocks of 8 x 8 pairs of codes. Lane 8 block + i points at the first pair of the
// block's row i. Lane l gets pair l / 4 of rows 2 (l % 4) and the next.
__device__ __forceinline__ void load_transposed(const uint4* row, uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Sixteen rows of a column whose rows are not aligned.
__device__ __noinline__ inline void store_bytes(uint8_t* to, uint4 codes, int64_t n) {
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if (i < n) to[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
  }
}

// A thread's place in the columns of all tiles: two columns, of which it takes
// twice sixteen rows. A warp takes 16 columns.
struct TileReader {
  int column = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 * 2;
  int row = static_cast<int>(threadIdx.x) % 4 * 16;  // and 64 more
  int slot = first_slot();                           // of what the warp reads together

  // Or they are made again for every tile.
  __device__ __forceinline__ void keep() { asm volatile("" : "+r"(column), "+r"(row), "+r"(slot)); }

 private:
  // Slot of row 2 q + b of a block, 16 q + b of the tile; blocks are two rows apart.
  static __device__ __forceinline__ int first_slot() {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    return tile_slot(lane % 8 / 2 * 16 + lane % 2, warp) + lane / 8 * 2 * kPieces;
  }
};

// Sixteen rows of two columns of a tile.
struct TwoColumns {
  uint4 first, second;

  __device__ __forceinline__ TwoColumns(const uint4* tile, const TileReader& reader, int half) {
    const uint4* const from = tile + reader.slot + half * 64 * kPieces;
    uint32_t low[4], high[4];
    load_transposed(from, low);
    load_transposed(from + 8 * kPieces, high);
    first = pick(low, high, 0x6420);
    second = pick(low, high, 0x7531);
  }

 private:
  static __device__ __forceinline__ uint4 pick(const uint32_t (&low)[4], const uint32_t (&high)[4],
                                               unsigned bytes) {
    return make_uint4(__byte_perm(low[0], low[1], bytes), __byte_perm(low[2], low[3], bytes),
                      __byte_perm(high[0], high[1], bytes), __byte_perm(high[2], high[3], bytes));
  }
};

// The tile in row and column `down` and `across` of tiles. kWhole: nothing ends within a tile, and
// 16 bytes are counted in 32 bits. Args: cols, padded_rows, transposed.
template <bool kWhole, typename Args>
__device__ __forceinline__ void write_tile(const Args& a, const uint4* tile,
                                           const TileReader& reader, int down, int across) {
  const TwoColumns upper(tile, reader, 0), lower(tile, reader, 1);
  if constexpr (kWhole) {
    const auto pieces = static_cast<uint32_t>(a.padded_rows) / 16;  // of a column
    const uint32_t at = static_cast<uint32_t>(across * kTile + reader.column) * pieces +
                        static_cast<uint32_t>(down * kTile + reader.row) / 16;
    auto* const first = reinterpret_cast<uint4*>(a.transposed) + at;
    auto* const second = reinterpret_cast<uint4*>(a.transposed) + (at + pieces);
    first[0] = upper.first;
    first[4] = lower.first;
    second[0] = upper.second;
    second[4] = lower.second;
    return;
  }
  const int64_t col = int64_t{across} * kTile + reader.column;
  const int64_t row = int64_t{down} * kTile + reader.row;
  const bool aligned = a.padded_rows % 16 == 0;
  const auto store = [&](int column, int below, const uint4& codes) {
    const int64_t left = a.padded_rows - (row + below);
    if (col + column >= a.cols || left <= 0) return;
    uint8_t* const at = a.transposed + (col + column) * a.padded_rows + (row + below);
    if (aligned) {
      *reinterpret_cast<uint4*>(at) = codes;
    } else {
      store_bytes(at, codes, left);
    }
  };
  store(0, 0, upper.first);
  store(0, 64, lower.first);
  store(1, 0, upper.second);
  store(1, 64, lower.second);
}

}  // namespace octet::cuda
