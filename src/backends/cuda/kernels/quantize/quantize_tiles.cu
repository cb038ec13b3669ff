// Codes of bf16 in blocks of 128 x 128 or in groups of 128 rows, read once: what a thread block
// holds of the tensor stays in registers between the maximum and the codes.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/quantize/quantize_groups.cuh"

namespace octet::cuda {
namespace {

constexpr int kAcross = kTileSize / kEight;  // threads of a row
constexpr int kDown = kThreads / kAcross;    // rows at a time
constexpr int kPieces = kTileSize / kDown;   // eights of a thread
constexpr int kTileBlocks = 4;               // of a multiprocessor

// The larger magnitudes of two pairs of bf16, as bits; what is not finite counts as 0.
__device__ __forceinline__ uint32_t larger_pair(uint32_t top, uint32_t pair) {
  const uint32_t magnitudes = pair & 0x7FFF7FFFu;
  return __vmaxu2(top, magnitudes & ~__vcmpgeu2(magnitudes, 0x7F807F80u));
}

// kSquare: one scale for the tile; else one a column.
template <bool kSquare>
inline constexpr int kScales = kSquare ? 1 : kTileSize;

// Data of a thread: `kPieces` eights of a column of eights.
struct Pieces {
  uint4 at[kPieces];
  int64_t row, col;  // of the first
  int place;         // of its columns in the tile

  __device__ __forceinline__ explicit Pieces(const GroupTask& t) {
    const int thread = static_cast<int>(threadIdx.x);
    place = thread % kAcross * kEight;
    row = blockIdx.x / t.panels_across * kTileSize + thread / kAcross;
    col = blockIdx.x % t.panels_across * kTileSize + place;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      at[k] = make_uint4(0, 0, 0, 0);
      if (is_inside(t, k))
        at[k] = __ldcs(
            reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(t.a) + offset(t, k)));
    }
  }
  __device__ __forceinline__ bool is_inside(const GroupTask& t, int k) const {
    return col < t.cols && row + k * kDown < t.rows;
  }
  __device__ __forceinline__ int64_t offset(const GroupTask& t, int k) const {
    return (row + k * kDown) * t.cols + col;
  }
};

// Bits of bf16.
template <bool kSquare>
__device__ __forceinline__ void find_tops(const Pieces& pieces, uint32_t* tops) {
  uint32_t top[4] = {};
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const uint4& eight = pieces.at[k];
    top[0] = larger_pair(top[0], eight.x), top[1] = larger_pair(top[1], eight.y);
    top[2] = larger_pair(top[2], eight.z), top[3] = larger_pair(top[3], eight.w);
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (kSquare) {
    const uint32_t pair = __vmaxu2(__vmaxu2(top[0], top[1]), __vmaxu2(top[2], top[3]));
    const uint32_t all = __reduce_max_sync(~0u, max(pair & 0xFFFFu, pair >> 16));
    if (lane == 0) atomicMax(tops, all);
  } else {
    // A warp has two rows of threads.
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      top[j] = __vmaxu2(top[j], __shfl_xor_sync(~0u, top[j], kAcross));
      if (lane >= kAcross) continue;
      atomicMax(tops + pieces.place + 2 * j, top[j] & 0xFFFFu);
      atomicMax(tops + pieces.place + 2 * j + 1, top[j] >> 16);
    }
  }
}

// A thread's own scale; 1 over it.
template <bool kSquare>
__device__ __forceinline__ float inverse_scale(const GroupTask& t, uint32_t top) {
  const float scale = make_scale(t.maker, __uint_as_float(top << 16));
  const int64_t down = blockIdx.x / t.panels_across;
  const int64_t column = blockIdx.x % t.panels_across * kTileSize + threadIdx.x;
  if (kSquare) {
    store_scale(t.scales, blockIdx.x, t.maker.type, scale);
  } else if (column < t.cols) {
    store_scale(t.scales, down * t.cols + column, t.maker.type, scale);
  }
  return 1.0f / scale;
}

template <Dtype C, bool kSquare>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    quantize_tile(const __grid_constant__ GroupTask t) {
  __shared__ uint32_t tops[kScales<kSquare>];
  __shared__ float inverse[kScales<kSquare>];
  const Pieces pieces(t);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kScales<kSquare>) tops[thread] = 0;
  __syncthreads();
  find_tops<kSquare>(pieces, tops);
  __syncthreads();
  if (thread < kScales<kSquare>) inverse[thread] = inverse_scale<kSquare>(t, tops[thread]);
  __syncthreads();
  float factors[kEight];
#pragma unroll
  for (int j = 0; j < kEight; ++j) factors[j] = inverse[kSquare ? 0 : pieces.place + j];
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const uint4& eight = pieces.at[k];
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
    float v[kEight];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[2 * j] = __uint_as_float(words[j] << 16) * factors[2 * j];
      v[2 * j + 1] = __uint_as_float(words[j] & 0xFFFF0000u) * factors[2 * j + 1];
    }
    if (pieces.is_inside(t, k))
      *reinterpret_cast<uint2*>(t.codes + pieces.offset(t, k)) = encode8<C>(v, 1.0f);
  }
}

}  // namespace

void launch_tiles(GroupTask t, Dtype codes, cudaStream_t stream) {
  t.panels_across = ceil_div(t.cols, kTileSize);
  const unsigned grid = grid_of(t.panels_across * ceil_div(t.rows, kTileSize));
  const auto launch = [&]<Dtype C>() {
    t.block_cols == 1 ? quantize_tile<C, false><<<grid, kThreads, 0, stream>>>(t)
                      : quantize_tile<C, true><<<grid, kThreads, 0, stream>>>(t);
  };
  visit_rows_of<is_fp8>(codes, launch);
}

}  // namespace octet::cuda
