// Codes in blocks of rows and columns, the way back, and both at once: params/quantize.h.
#include <algorithm>

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "formats/periodic_scale.h"

namespace octet::cuda {
namespace {

constexpr int kWarps = kThreads / 32;

__device__ __forceinline__ uint32_t finite_bits(float x) {
  const uint32_t magnitude = __float_as_uint(x) & kF32Magnitude;
  return magnitude < kF32Inf ? magnitude : 0u;
}

template <Dtype C>
__device__ __forceinline__ uint8_t code_of(float x, Rounding rounding, Dtype source) {
  if (rounding == Rounding::near) return static_cast<uint8_t>(from_float<C>(x));
  return static_cast<uint8_t>(encode<C>(x, rounding, {.source = source}));
}

// A thread block has one row of blocks, `width` columns of it: whole blocks, of 128 columns or more
// together. A warp has rows, a lane `V` columns that lie together.
struct BlockTask {
  const void* x;
  uint8_t* codes;
  void* scales;
  BlockParams p;
  ScaleMaker maker;
  int64_t width, tiles_across;
};
struct Tile {
  int64_t row, col;
  int64_t n_rows, n_cols;
};
__device__ __forceinline__ Tile tile_of(const BlockTask& t) {
  const int64_t row = blockIdx.x / t.tiles_across * t.p.block_rows;
  const int64_t col = blockIdx.x % t.tiles_across * t.width;
  return {row, col, min(t.p.block_rows, t.p.rows - row), min(t.width, t.p.cols - col)};
}

template <int V>
__device__ __forceinline__ void load_columns(const BlockTask& t, int64_t i, float (&v)[V]) {
  if constexpr (V == 1) {
    v[0] = load_float(t.x, i, t.p.x);
  } else if (t.p.x == Dtype::f32) {
    const auto pack = load_pack<V>(static_cast<const float*>(t.x) + i);
#pragma unroll
    for (int j = 0; j < V; ++j) v[j] = pack.at[j];
  } else {
    const auto pack = load_pack<V>(static_cast<const uint16_t*>(t.x) + i);
    const bool half = t.p.x == Dtype::fp16;
#pragma unroll
    for (int j = 0; j < V; ++j)
      v[j] = half ? to_float<Dtype::fp16>(pack.at[j]) : to_float<Dtype::bf16>(pack.at[j]);
  }
}

template <int V>
__device__ __forceinline__ void find_maxima(const BlockTask& t, const Tile& tile, uint32_t* tops) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t c = lane * V; c < tile.n_cols; c += 32 * V) {
    uint32_t top[V] = {};
#pragma unroll 4
    for (int64_t r = warp; r < tile.n_rows; r += kWarps) {
      float v[V];
      load_columns<V>(t, (tile.row + r) * t.p.cols + tile.col + c, v);
#pragma unroll
      for (int j = 0; j < V; ++j) top[j] = max(top[j], finite_bits(v[j]));
    }
    // The order of maxima does not matter.
#pragma unroll
    for (int j = 0; j < V; ++j) atomicMax(tops + (c + j) / t.p.block_cols, top[j]);
  }
}

template <Dtype C, int V>
__global__ void __launch_bounds__(kThreads) quantize_block(const __grid_constant__ BlockTask t) {
  __shared__ uint32_t tops[kMaxBlocksAcross];
  __shared__ float inv_scales[kMaxBlocksAcross];
  const Tile tile = tile_of(t);
  const int n_blocks = static_cast<int>((tile.n_cols + t.p.block_cols - 1) / t.p.block_cols);
  for (int i = threadIdx.x; i < n_blocks; i += kThreads) tops[i] = 0;
  __syncthreads();
  find_maxima<V>(t, tile, tops);
  __syncthreads();
  const int64_t across = (t.p.cols + t.p.block_cols - 1) / t.p.block_cols;
  const int64_t first = tile.row / t.p.block_rows * across + tile.col / t.p.block_cols;
  for (int i = threadIdx.x; i < n_blocks; i += kThreads) {
    const float scale = make_scale(t.maker, __uint_as_float(tops[i]));
    store_scale(t.scales, first + i, t.p.scales, scale);
    inv_scales[i] = 1.0f / scale;
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int64_t c = lane * V; c < tile.n_cols; c += 32 * V) {
    float inv_scale[V];
#pragma unroll
    for (int j = 0; j < V; ++j) inv_scale[j] = inv_scales[(c + j) / t.p.block_cols];
#pragma unroll 4
    for (int64_t r = warp; r < tile.n_rows; r += kWarps) {
      const int64_t i = (tile.row + r) * t.p.cols + tile.col + c;
      float v[V];
      load_columns<V>(t, i, v);
      Pack<uint8_t, V> codes;
#pragma unroll
      for (int j = 0; j < V; ++j)
        codes.at[j] = code_of<C>(v[j] * inv_scale[j], t.p.rounding, t.p.source);
      store_pack<V>(t.codes + i, codes);
    }
  }
}

void run_blocks(const BlockParams& p, const Launch& args) {
  if (p.rows == 0 || p.cols == 0) return;
  if (are_block_tiles(p, args)) return launch_block_tiles(p, args);
  constexpr int64_t kWidth = 128;
  const int64_t block_cols = std::min(p.block_cols, p.cols);
  const int64_t n_together = std::clamp<int64_t>(kWidth / block_cols, 1, kMaxBlocksAcross);
  BlockTask t{.x = args.operands[0],
              .codes = args.out<uint8_t>(0),
              .scales = args.results[1],
              .p = p,
              .maker = {p.target, 1.0f / p.target, p.rule, p.scales},
              .width = n_together * block_cols,
              .tiles_across = 0};
  t.p.block_cols = block_cols;
  t.p.block_rows = std::min(p.block_rows, p.rows);
  t.tiles_across = ceil_div(p.cols, t.width);
  constexpr int kTogether = 4;
  const bool aligned = is_aligned(t.x, 16) && is_aligned(t.codes, kTogether) &&
                       p.cols % kTogether == 0 && t.width % kTogether == 0;
  const unsigned grid = grid_of(t.tiles_across * ceil_div(p.rows, t.p.block_rows));
  visit_format(p.codes, [&]<Dtype C>() {
    aligned ? quantize_block<C, kTogether><<<grid, kThreads, 0, args.stream>>>(t)
            : quantize_block<C, 1><<<grid, kThreads, 0, args.stream>>>(t);
  });
  check_launch("quantize_blocks");
}

struct DequantizeTask {
  DequantizeCall call;
  DequantizeParams p;
  int64_t eights, across;  // of a row, and its blocks
  bool aligned = false;
};

__device__ __forceinline__ float load_scale(const void* scales, int64_t i, Dtype dtype) {
  if (dtype == Dtype::e8m0) return to_float<Dtype::e8m0>(static_cast<const uint8_t*>(scales)[i]);
  return load_float(scales, i, dtype);
}

// Eight columns of a row a thread.
template <Dtype C>
__global__ void __launch_bounds__(kThreads)
    dequantize_blocks(const __grid_constant__ DequantizeTask t) {
  const DequantizeParams& p = t.p;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.rows * t.eights) return;
  const int64_t row = at / t.eights, col = at % t.eights * kEight;
  const int64_t i = row * p.cols + col, first = p.group == 0 ? 0 : row / p.block_rows * t.across;
  const auto scale_at = [&](int64_t c) {
    return load_scale(t.call.scales, p.group == 0 ? 0 : first + c / p.group, p.scales);
  };
  const auto* codes = static_cast<const uint8_t*>(t.call.codes);
  if (!t.aligned) {
    for (int64_t c = col; c < min(p.cols, col + kEight); ++c)
      store_float(t.call.y, i + c - col, p.y, to_float<C>(codes[i + c - col]) * scale_at(c));
    return;
  }
  float v[8];
  decode8<C>(*reinterpret_cast<const uint2*>(codes + i), v);
  const bool is_one = p.group % kEight == 0;
  const float scale = scale_at(col);
#pragma unroll
  for (int j = 0; j < kEight; ++j) v[j] *= is_one ? scale : scale_at(col + j);
  store_raw8(t.call.y, i, p.y, narrow8(v, p.y));
}

// A warp has a group.
struct FakeTask {
  const void* x;
  void* y;
  FakeQuantizeParams p;
  ScaleMaker maker;
  int64_t across;
};
template <Dtype C>
__global__ void __launch_bounds__(kThreads) fake_groups(const __grid_constant__ FakeTask t) {
  const FakeQuantizeParams& p = t.p;
  const int lane = threadIdx.x % 32;
  const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (at >= p.rows * t.across) return;
  const int64_t row = at / t.across, first = at % t.across * p.group;
  const int64_t begin = row * p.cols + first, end = row * p.cols + min(p.cols, first + p.group);
  uint32_t top = 0;
  for (int64_t i = begin + lane; i < end; i += 32)
    top = max(top, finite_bits(load_float(t.x, i, p.x)));
  const float scale = make_scale(t.maker, __uint_as_float(__reduce_max_sync(~0u, top)));
  const float inv_scale = 1.0f / scale;
  for (int64_t i = begin + lane; i < end; i += 32) {
    const auto code = from_float<C>(load_float(t.x, i, p.x) * inv_scale);
    store_float(t.y, i, p.y, to_float<C>(code) * scale);
  }
}

void run_fake(const FakeQuantizeParams& p, const Launch& args) {
  if (p.rows == 0 || p.cols == 0) return;
  FakeTask t{
      .x = args.operands[0],
      .y = args.results[0],
      .p = p,
      .maker = {p.target, 1.0f / p.target, p.power ? ScaleRule::power_ceil : ScaleRule::linear,
                p.power ? Dtype::e8m0 : Dtype::f32},
      .across = ceil_div(p.cols, p.group)};
  const unsigned grid = grid_of(ceil_div(p.rows * t.across, kWarps));
  visit_format(p.format, [&]<Dtype C>() { fake_groups<C><<<grid, kThreads, 0, args.stream>>>(t); });
  check_launch("fake_quantize");
}

__global__ void step_scale(PeriodicScaleParams p, const float* amax, const float* before,
                           float* scale) {
  *scale = periodic_scale(*before, *amax, p.target);
}

void run_periodic_scale(const PeriodicScaleParams& p, const Launch& args) {
  step_scale<<<1, 1, 0, args.stream>>>(p, args.in<float>(0), args.in<float>(1), args.out<float>(0));
  check_launch("periodic_scale");
}

}  // namespace

void launch_dequantize_blocks(const DequantizeParams& p, const DequantizeCall& call) {
  if (p.rows == 0 || p.cols == 0) return;
  DequantizeTask t{.call = call,
                   .p = p,
                   .eights = ceil_div(p.cols, kEight),
                   .across = p.group == 0 ? 1 : ceil_div(p.cols, p.group)};
  t.aligned = is_aligned(call.codes, 8) && is_aligned(call.y, 16) && p.cols % kEight == 0;
  const unsigned grid = grid_of(ceil_div(p.rows * t.eights, kThreads));
  visit_format(p.codes,
               [&]<Dtype C>() { dequantize_blocks<C><<<grid, kThreads, 0, call.stream>>>(t); });
  check_launch("dequantize, blocks");
}

std::unique_ptr<Prepared> prepare_blocks(const Request& request) {
  return stateless<BlockParams, run_blocks>(request);
}
std::unique_ptr<Prepared> prepare_fake_quantize(const Request& request) {
  return stateless<FakeQuantizeParams, run_fake>(request);
}
std::unique_ptr<Prepared> prepare_periodic_scale(const Request& request) {
  return stateless<PeriodicScaleParams, run_periodic_scale>(request);
}

}  // namespace octet::cuda
