// Transposed codes of norms and gated activations of codes in groups: tiles of codes to codes
// (code_tile.cuh). The codes by row go out on the way where they are wanted too.
//
// A thread takes the same piece of four rows of every tile. The next tile's codes are on their way
// to its registers from the moment that this tile's are used; two tiles in turn in shared memory
// leave one barrier for each. Where tiles are not whole a thread reads the last row or column again
// at the edges, and puts zeros into the tile.
#include "backends/cuda/kernels/activation/gated_codes.cuh"
#include "backends/cuda/kernels/common/code_tile_walk.cuh"
#include "backends/cuda/kernels/norm/norm_columns.cuh"

namespace octet::cuda {
namespace {

// Blocks that a multiprocessor holds, for what a thread has on its way.
constexpr int resident(RowLayer layer, bool whole) {
  if (!whole) return 2;
  return layer == RowLayer::rms_norm ? 4 : layer == RowLayer::layer_norm ? 2 : 3;
}

// A tile that is being made.
template <bool kWhole>
struct Target {
  uint4* tile;
  const TileAt& at;
  const ThreadAt& thread;

  // Piece k of this thread.
  __device__ __forceinline__ void put(const LayerArgs& a, int k, uint4 codes) const {
    const int row = at.row * kTile + thread.row + k * kRowsPerStep;
    const int column = at.column * kPieces + thread.piece;
    const auto groups = static_cast<uint32_t>(a.cols) / kChunk;
    const bool inside =
        kWhole || (row < static_cast<int>(a.rows) && column < static_cast<int>(groups));
    if (!inside) codes = make_uint4(0, 0, 0, 0);
    tile[thread.slot_of(k)] = codes;
    if (a.codes != nullptr && inside)
      reinterpret_cast<uint4*>(
          a.codes)[static_cast<uint32_t>(row) * groups + static_cast<uint32_t>(column)] = codes;
  }
};

// Pieces of gate and up.
template <bool kWhole>
struct GatedPieces {
  uint4 gate[kPiecesPerThread], up[kPiecesPerThread];
  uint16_t gate_scale[kPiecesPerThread], up_scale[kPiecesPerThread];
  NanCodes nan;

  __device__ __forceinline__ void load(const LayerArgs& a, const PiecesPlace<kWhole>& p, int k) {
    const uint32_t i = p.piece(k);
    gate[k] = __ldcs(static_cast<const uint4*>(a.x.data) + i);
    up[k] = __ldcs(static_cast<const uint4*>(a.up.data) + i);
    gate_scale[k] = __ldcs(static_cast<const uint16_t*>(a.x.scales) + i * a.x.scale_step);
    up_scale[k] = __ldcs(static_cast<const uint16_t*>(a.up.scales) + i * a.up.scale_step);
  }
  __device__ __forceinline__ void load(const LayerArgs& a, const PiecesPlace<kWhole>& p) {
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k) load(a, p, k);
  }
  // This tile's codes; the next tile's take their place.
  template <bool kMore>
  __device__ __forceinline__ void turn(const LayerArgs& a, float inv_scale,
                                       const Target<kWhole>& to, const PiecesPlace<kWhole>& next) {
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k) {
      const uint4 codes =
          gated_codes(gate[k], up[k], GatedScales(gate_scale[k], up_scale[k], inv_scale));
      nan.add(codes);
      to.put(a, k, codes);
      if constexpr (kMore) load(a, next, k);
    }
  }
};

// Pieces of a norm's operand, whose weights serve all of them.
template <bool kCentred, bool kWhole>
struct NormPieces {
  uint32_t words[kPiecesPerThread][4];
  uint16_t scales[kPiecesPerThread];
  NormRow rows[kPiecesPerThread];
  GroupColumns<kCentred> columns;
  NanCodes nan;  // none: what gave the scale saw all codes

  __device__ __forceinline__ void load(const LayerArgs& a, const PiecesPlace<kWhole>& p) {
    const float* const mean = kCentred ? a.mean + p.row : nullptr;
    const float* const rstd = a.rstd + p.row;
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k) {
      const uint32_t i = p.piece(k);
      const uint4 codes = __ldcs(static_cast<const uint4*>(a.x.data) + i);
      words[k][0] = codes.x, words[k][1] = codes.y, words[k][2] = codes.z, words[k][3] = codes.w;
      scales[k] = __ldcs(static_cast<const uint16_t*>(a.x.scales) + i);
      rows[k] = {kCentred ? mean[p.rows_to(k)] : 0.0f, rstd[p.rows_to(k)]};
    }
    columns.load(a, p.column * kChunk);
  }
  template <bool kMore>
  __device__ __forceinline__ void turn(const LayerArgs& a, float inv_scale,
                                       const Target<kWhole>& to, const PiecesPlace<kWhole>& next) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const FourColumns<kCentred> four(columns, w);
#pragma unroll
      for (int k = 0; k < kPiecesPerThread; ++k)
        words[k][w] = norm_word<kCentred>(words[k][w], to_float<Dtype::bf16>(scales[k]), rows[k],
                                          four, inv_scale);
    }
#pragma unroll
    for (int k = 0; k < kPiecesPerThread; ++k)
      to.put(a, k, make_uint4(words[k][0], words[k][1], words[k][2], words[k][3]));
    if constexpr (kMore) load(a, next);
  }
};

template <typename Pieces, bool kWhole>
__device__ __forceinline__ void turn_tiles(const LayerArgs& a) {
  __shared__ uint4 tiles[2][kTile * kPieces];
  ThreadAt thread;
  thread.keep();
  TileWalk walk(a);
  if (!walk.more()) return;
  Pieces pieces;
  pieces.load(a, PiecesPlace<kWhole>(a, walk.at(), thread));
  const Encoding e = begin_pass(a.scale);
  if (!e.codes) return;
  int which = 0;
  const auto turn = [&]<bool kMore>(const TileAt& at, const TileAt& next) {
    uint4* const tile = tiles[which];
    pieces.template turn<kMore>(a, e.inv_scale, {tile, at, thread},
                                PiecesPlace<kWhole>(a, next, thread));
    __syncthreads();
    write_tile<kWhole>(a, tile, thread.reader, at.row, at.column);
    which ^= 1;
  };
  TileAt at = walk.at();
  for (walk.advance(); walk.more(); walk.advance()) {
    const TileAt next = walk.at();
    turn.template operator()<true>(at, next);
    at = next;
  }
  turn.template operator()<false>(at, at);
  if (a.scale.bounded && pieces.nan.any()) *a.scale.flag = 1;
}

template <bool kWhole>
__global__ void __launch_bounds__(kTileThreads, resident(RowLayer::gated_silu, kWhole))
    gated_tiles(const __grid_constant__ LayerArgs a) {
  turn_tiles<GatedPieces<kWhole>, kWhole>(a);
}
template <bool kCentred, bool kWhole>
__global__ void __launch_bounds__(kTileThreads,
                                  resident(kCentred ? RowLayer::layer_norm : RowLayer::rms_norm,
                                           kWhole))
    norm_tiles(const __grid_constant__ LayerArgs a) {
  turn_tiles<NormPieces<kCentred, kWhole>, kWhole>(a);
}

template <bool kWhole>
LayerKernel kernel_of(RowLayer layer) {
  if (layer == RowLayer::gated_silu) return gated_tiles<kWhole>;
  return layer == RowLayer::layer_norm ? norm_tiles<true, kWhole> : norm_tiles<false, kWhole>;
}

}  // namespace

LayerLaunch code_tiles_launch(const LayerArgs& a) {
  const bool whole = a.rows % kTile == 0 && a.cols % kTile == 0 && a.padded_rows == a.rows;
  const int64_t n_tiles = int64_t{tiles_of(a.cols)} * tiles_of(a.padded_rows);
  return {whole ? kernel_of<true>(a.layer) : kernel_of<false>(a.layer),
          static_cast<unsigned>(wave_blocks(n_tiles, resident(a.layer, whole), a.n_sm)),
          kTileThreads};
}

}  // namespace octet::cuda
