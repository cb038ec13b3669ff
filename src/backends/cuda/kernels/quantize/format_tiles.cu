// Quantizers of any granularity: a pass for the tiles' ranges, one for scales or metadata, one for
// codes. A warp has a segment (format_tiles.h); the ranges of a tile's segments meet in atomics,
// whose result no order changes.
#include <algorithm>

#include "backends/cuda/kernels/quantize/format_arrays.h"
#include "backends/cuda/kernels/quantize/format_tiles.h"
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "math/expansion.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kMaxBlocks = 1 << 16;

unsigned blocks_for(int64_t n, int64_t each) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + each - 1) / each, 1, kMaxBlocks));
}

TileWalk walk_of(const OctetCudaTiles& call) {
  return tile_walk(call.rows, call.cols, call.tile_rows, call.tile_cols);
}

constexpr bool has_expansion(Dtype dtype) {
  return is_format(dtype) && format_row(dtype).expansion_ratio_m != 0;
}

// Calls f(segment) for every segment of this warp; below, f(element) for every element of this
// lane.
template <typename F>
__device__ __forceinline__ void for_segments(const TileWalk& walk, F&& f) {
  const int64_t n = walk.n_segments(), stride = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < n; i += stride) {
    f(walk.segment(i));
  }
}
template <typename F>
__device__ __forceinline__ void for_elements(const TileSegment& segment, F&& f) {
  for (int64_t i = threadIdx.x % 32; i < segment.n; i += 32) f(segment.first + i);
}

// amax: bits of each tile's largest finite magnitude, zeros before. amin: of the smallest that is
// not zero, all ones before; null where nobody asks.
__global__ void __launch_bounds__(kThreads)
    tile_ranges(const __grid_constant__ TileWalk walk, const float* x, uint32_t* amax,
                uint32_t* amin, uint32_t* nonfinite) {
  for_segments(walk, [&](const TileSegment& segment) {
    AbsRange range;
    for_elements(segment, [&](int64_t i) { range = join(range, x[i]); });
    const uint32_t largest = __reduce_max_sync(~0u, bits_of(range.amax));
    const uint32_t smallest = __reduce_min_sync(~0u, bits_of(range.amin));
    const bool bad = __any_sync(~0u, range.nonfinite);
    if (threadIdx.x % 32 != 0) return;
    if (largest != 0) atomicMax(&amax[segment.tile], largest);
    if (amin != nullptr) atomicMin(&amin[segment.tile], smallest);
    if (bad) *nonfinite = 1;
  });
}

// In place: amax becomes the scale.
__global__ void __launch_bounds__(kThreads)
    scales_of(const __grid_constant__ ScaleMaker maker, float* scales, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    scales[i] = make_scale(maker, scales[i]);
  }
}

// In place: amax becomes the metadata.
__global__ void __launch_bounds__(kThreads)
    metadata_of(const __grid_constant__ RangeThresholds thresholds, uint32_t* meta,
                const uint32_t* amin, int64_t n) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) {
    meta[i] = expansion_meta({float_of(meta[i]), float_of(amin[i]), false}, thresholds);
  }
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    scaled_codes(const __grid_constant__ TileWalk walk, const float* x, const float* scales,
                 uint8_t* codes) {
  for_segments(walk, [&](const TileSegment& segment) {
    const float inv_scale = 1.0f / scales[segment.tile];
    for_elements(segment,
                 [&](int64_t i) { codes[i] = static_cast<uint8_t>(encode<D>(x[i] * inv_scale)); });
  });
}

// A NaN's bits are those of the CPU's product, where a GPU's are its own.
__device__ __forceinline__ float scaled(float q, float scale) {
  if (is_nan(q)) return q;
  if (is_nan(scale)) return float_of(bits_of(scale) | 0x00400000u);
  const float x = q * scale;
  return is_nan(x) ? float_of(kF32Nan | 0x80000000u) : x;
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    scaled_values(const __grid_constant__ TileWalk walk, const uint8_t* codes, const float* scales,
                  float* x) {
  for_segments(walk, [&](const TileSegment& segment) {
    const float scale = scales[segment.tile];
    for_elements(segment, [&](int64_t i) { x[i] = scaled(decode<D>(codes[i]), scale); });
  });
}

template <Dtype D, MathMode Mode>
__global__ void __launch_bounds__(kThreads)
    expanded_codes(const __grid_constant__ TileWalk walk, const float* x, const uint32_t* meta,
                   uint8_t* codes) {
  for_segments(walk, [&](const TileSegment& segment) {
    const uint32_t word = meta[segment.tile];
    for_elements(segment, [&](int64_t i) {
      codes[i] = static_cast<uint8_t>(expand_encode<D, Mode>(x[i], word));
    });
  });
}

template <Dtype D, MathMode Mode>
__global__ void __launch_bounds__(kThreads)
    contracted_values(const __grid_constant__ TileWalk walk, const uint8_t* codes,
                      const uint32_t* meta, float* x) {
  for_segments(walk, [&](const TileSegment& segment) {
    const uint32_t word = meta[segment.tile];
    const float amax = meta_amax(word);
    const bool good = word == 0 || (is_finite(amax) && amax > 0 && meta_k16(word) > 0);
    for_elements(segment, [&](int64_t i) {
      x[i] = good ? expand_decode<D, Mode>(codes[i], word) : float_of(kF32Nan);
    });
  });
}

void fill(void* at, int64_t n_words, int byte, cudaStream_t stream) {
  if (n_words > 0)
    check(cudaMemsetAsync(at, byte, static_cast<size_t>(n_words) * 4, stream), "filling");
}

// f.operator()<D, Mode>()
template <typename F>
void visit_expansion(const OctetCudaTiles& call, F&& f) {
  visit_rows_of<has_expansion>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    if (call.fast != 0) return f.template operator()<D, MathMode::fast>();
    f.template operator()<D, MathMode::exact>();
  });
}

RangeThresholds thresholds_of(const OctetCudaTiles& call) {
  RangeThresholds result;
  visit_rows_of<has_expansion>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    result = call.second_moment != 0 ? kExpansion<D, Moment::second>.thresholds
                                     : kExpansion<D, Moment::first>.thresholds;
  });
  return result;
}

}  // namespace

void launch_quantize_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  const unsigned blocks = blocks_for(walk.n_segments(), kWarps);
  const int64_t n = call.grid_rows * call.grid_cols;
  auto* scales = static_cast<float*>(call.of_tiles);
  visit_rows_of<has_codec>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    constexpr float kTarget = kFormatRow<D>.amax_target;
    const ScaleMaker maker{kTarget, 1.0f / kTarget, ScaleRule::linear,
                           call.bf16_scales != 0 ? Dtype::bf16 : Dtype::f32};
    fill(scales, n, 0, stream);
    fill(call.nonfinite, 1, 0, stream);
    tile_ranges<<<blocks, kThreads, 0, stream>>>(
        walk, call.x, static_cast<uint32_t*>(call.of_tiles), nullptr, call.nonfinite);
    scales_of<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(maker, scales, n);
    scaled_codes<D><<<blocks, kThreads, 0, stream>>>(walk, call.x, scales, call.codes);
  });
  check_launch("quantizing an array");
}

void launch_dequantize_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  visit_rows_of<has_codec>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    scaled_values<D><<<blocks_for(walk.n_segments(), kWarps), kThreads, 0, stream>>>(
        walk, call.codes, static_cast<const float*>(call.of_tiles), call.x);
  });
  check_launch("dequantizing an array");
}

void launch_expand_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  const unsigned blocks = blocks_for(walk.n_segments(), kWarps);
  const int64_t n = call.grid_rows * call.grid_cols;
  auto* meta = static_cast<uint32_t*>(call.of_tiles);
  const RangeThresholds thresholds = thresholds_of(call);
  fill(meta, n, 0, stream);
  fill(call.scratch, n, 0xFF, stream);
  fill(call.nonfinite, 1, 0, stream);
  tile_ranges<<<blocks, kThreads, 0, stream>>>(walk, call.x, meta, call.scratch, call.nonfinite);
  metadata_of<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(thresholds, meta, call.scratch, n);
  visit_expansion(call, [&]<Dtype D, MathMode Mode>() {
    expanded_codes<D, Mode><<<blocks, kThreads, 0, stream>>>(walk, call.x, meta, call.codes);
  });
  check_launch("expanding an array");
}

void launch_contract_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  visit_expansion(call, [&]<Dtype D, MathMode Mode>() {
    contracted_values<D, Mode><<<blocks_for(walk.n_segments(), kWarps), kThreads, 0, stream>>>(
        walk, call.codes, static_cast<const uint32_t*>(call.of_tiles), call.x);
  });
  check_launch("contracting an array");
}

}  // namespace octet::cuda
