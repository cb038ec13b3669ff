// Arrays to codes and back, one value a thread; and quantizers of any granularity: a pass for the
// tiles' ranges, one for scales or metadata, one for codes. A warp has a segment (format_tiles.h);
// the ranges of a tile's segments meet in atomics, whose result no order changes.
#include <algorithm>

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/quantize/format_arrays.h"
#include "backends/cuda/kernels/quantize/format_tiles.h"
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "base/philox.h"
#include "math/expansion.h"

namespace octet::cuda {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int64_t kMaxBlocks = 1 << 16;

unsigned blocks_for(int64_t n, int64_t each = kThreads) {
  return static_cast<unsigned>(std::clamp<int64_t>(ceil_div(n, each), 1, kMaxBlocks));
}

// Calls f(i) for every i below n that is this thread's.
template <typename F>
__device__ __forceinline__ void for_all(int64_t n, F&& f) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride) f(i);
}

// The random words are those of encode_array.
constexpr uint64_t kStream = name_hash("formats");
template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    encode_values(const __grid_constant__ OctetCudaEncoding call) {
  const auto rounding = static_cast<Rounding>(call.rounding);
  const RandomStream stream{.name = kStream, .seed = call.seed};
  EncodeOptions options{.saturate = call.saturate != 0,
                        .nan_to_zero = call.nan_to_zero != 0,
                        .random_bits = 0,
                        .source = static_cast<Dtype>(call.source)};
  for_all(call.n, [&](int64_t i) {
    if (call.bits != nullptr) {
      options.random_bits = call.bits[i];
    } else if (rounding == Rounding::sr) {
      options.random_bits = stream.bits(static_cast<uint64_t>(i));
    }
    const float x = load_float(call.values, i, options.source);
    static_cast<Storage<D>*>(call.codes)[i] =
        static_cast<Storage<D>>(encode<D>(x, rounding, options));
  });
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    decode_codes(const __grid_constant__ OctetCudaDecoding call) {
  for_all(call.n, [&](int64_t i) {
    call.values[i] = decode<D>(static_cast<const Storage<D>*>(call.codes)[i]);
  });
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

// A NaN's bits are those of the CPU's product, where a GPU's are its own.
__device__ __forceinline__ float scaled(float q, float scale) {
  if (is_nan(q)) return q;
  if (is_nan(scale)) return float_of(bits_of(scale) | 0x00400000u);
  const float x = q * scale;
  return is_nan(x) ? float_of(kF32Nan | 0x80000000u) : x;
}

// In place: a tile's amax becomes its scale.
__global__ void __launch_bounds__(kThreads)
    scales_of(const __grid_constant__ ScaleMaker maker, float* scales, int64_t n) {
  for_all(n, [&](int64_t i) { scales[i] = make_scale(maker, scales[i]); });
}
// In place: a tile's amax becomes its metadata.
__global__ void __launch_bounds__(kThreads)
    metadata_of(const __grid_constant__ RangeThresholds thresholds, uint32_t* meta,
                const uint32_t* amin, int64_t n) {
  for_all(n, [&](int64_t i) {
    meta[i] = expansion_meta({float_of(meta[i]), float_of(amin[i]), false}, thresholds);
  });
}

enum class Conversion : int { quantize, dequantize, expand, contract };

// By the scales or metadata of tiles. Mode: of what expands and contracts.
template <Dtype D, Conversion To, MathMode Mode>
__global__ void __launch_bounds__(kThreads)
    convert_tiles(const __grid_constant__ TileWalk walk, float* x, uint8_t* codes,
                  const uint32_t* of_tiles) {
  for_segments(walk, [&](const TileSegment& segment) {
    const uint32_t word = of_tiles[segment.tile];
    const float scale = float_of(word), amax = meta_amax(word);
    const float inv_scale = 1.0f / scale;
    const bool good = word == 0 || (is_finite(amax) && amax > 0 && meta_k16(word) > 0);
    for_elements(segment, [&](int64_t i) {
      if constexpr (To == Conversion::quantize) {
        codes[i] = static_cast<uint8_t>(encode<D>(x[i] * inv_scale));
      } else if constexpr (To == Conversion::dequantize) {
        x[i] = scaled(decode<D>(codes[i]), scale);
      } else if constexpr (To == Conversion::expand) {
        codes[i] = static_cast<uint8_t>(expand_encode<D, Mode>(x[i], word));
      } else {
        x[i] = good ? expand_decode<D, Mode>(codes[i], word) : float_of(kF32Nan);
      }
    });
  });
}

TileWalk walk_of(const OctetCudaTiles& call) {
  return tile_walk(call.rows, call.cols, call.tile_rows, call.tile_cols);
}

template <Conversion To, Dtype D, MathMode Mode>
void convert(const OctetCudaTiles& call, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  convert_tiles<D, To, Mode><<<blocks_for(walk.n_segments(), kWarps), kThreads, 0, stream>>>(
      walk, call.x, call.codes, static_cast<const uint32_t*>(call.of_tiles));
  check_launch("converting an array");
}
template <Conversion To>
void convert_scaled(const OctetCudaTiles& call, cudaStream_t stream) {
  visit_format(static_cast<Dtype>(call.format),
               [&]<Dtype D>() { convert<To, D, MathMode::exact>(call, stream); });
}
template <Conversion To>
void convert_expanded(const OctetCudaTiles& call, cudaStream_t stream) {
  visit_rows_of<has_expansion>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    call.fast != 0 ? convert<To, D, MathMode::fast>(call, stream)
                   : convert<To, D, MathMode::exact>(call, stream);
  });
}

void fill(void* at, int64_t n_words, int byte, cudaStream_t stream) {
  if (n_words > 0)
    check(cudaMemsetAsync(at, byte, static_cast<size_t>(n_words) * 4, stream), "filling");
}

// Amaxes into the places of scales or metadata; what is smallest into amin, unless that is null.
void find_ranges(const OctetCudaTiles& call, int64_t n, uint32_t* amin, cudaStream_t stream) {
  const TileWalk walk = walk_of(call);
  fill(call.of_tiles, n, 0, stream);
  fill(call.nonfinite, 1, 0, stream);
  if (amin != nullptr) fill(amin, n, 0xFF, stream);
  tile_ranges<<<blocks_for(walk.n_segments(), kWarps), kThreads, 0, stream>>>(
      walk, call.x, static_cast<uint32_t*>(call.of_tiles), amin, call.nonfinite);
}

}  // namespace

void launch_encode_array(const OctetCudaEncoding& call, cudaStream_t stream) {
  if (call.n == 0) return;
  visit_rows_of<is_format>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    encode_values<D><<<blocks_for(call.n), kThreads, 0, stream>>>(call);
  });
  check_launch("encoding an array");
}

void launch_decode_array(const OctetCudaDecoding& call, cudaStream_t stream) {
  if (call.n == 0) return;
  visit_rows_of<is_format>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    decode_codes<D><<<blocks_for(call.n), kThreads, 0, stream>>>(call);
  });
  check_launch("decoding an array");
}

void launch_quantize_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const int64_t n = call.grid_rows * call.grid_cols;
  ScaleMaker maker{.rule = ScaleRule::linear,
                   .type = call.bf16_scales != 0 ? Dtype::bf16 : Dtype::f32};
  visit_format(static_cast<Dtype>(call.format),
               [&]<Dtype D>() { maker.target = kFormatRow<D>.amax_target; });
  maker.inv_target = 1.0f / maker.target;
  find_ranges(call, n, nullptr, stream);
  scales_of<<<blocks_for(n), kThreads, 0, stream>>>(maker, static_cast<float*>(call.of_tiles), n);
  convert_scaled<Conversion::quantize>(call, stream);
}

void launch_dequantize_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  convert_scaled<Conversion::dequantize>(call, stream);
}

void launch_expand_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  const int64_t n = call.grid_rows * call.grid_cols;
  RangeThresholds thresholds;
  visit_rows_of<has_expansion>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    thresholds = call.second_moment != 0 ? kExpansion<D, Moment::second>.thresholds
                                         : kExpansion<D, Moment::first>.thresholds;
  });
  find_ranges(call, n, call.scratch, stream);
  metadata_of<<<blocks_for(n), kThreads, 0, stream>>>(
      thresholds, static_cast<uint32_t*>(call.of_tiles), call.scratch, n);
  convert_expanded<Conversion::expand>(call, stream);
}

void launch_contract_tiles(const OctetCudaTiles& call, cudaStream_t stream) {
  convert_expanded<Conversion::contract>(call, stream);
}

}  // namespace octet::cuda
