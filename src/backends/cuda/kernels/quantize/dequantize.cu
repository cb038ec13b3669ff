// Quantized data times its scales: params/quantize.h.
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "backends/cuda/kernels/quantize/quantize_eights.cuh"

namespace octet::cuda {
namespace {

struct DequantizeTask {
  DequantizeCall call;
  DequantizeParams p;  // of one scale: one row of one group
  int64_t n, across;   // elements; scales of a row
  bool in_eights;      // that are aligned and lie in a row
  bool even;           // an eight has one scale, number i / group
};

// The scales of element i's row of blocks begin at `first`, and its own column is `col`.
struct ScalePlace {
  int64_t first, col;
};
__device__ __forceinline__ ScalePlace place_of(const DequantizeTask& t, int64_t i) {
  if (t.even) return {quotient(i, t.p.group), 0};
  const int64_t row = i / t.p.cols;
  return {row / t.p.block_rows * t.across, i - row * t.p.cols};
}
// Scale of the element j columns on.
__device__ __forceinline__ float scale_at(const DequantizeTask& t, const ScalePlace& place, int j) {
  const int64_t at = place.first + quotient(place.col + j, t.p.group);
  if (t.p.scales != Dtype::e8m0) return load_float(t.call.scales, at, t.p.scales);
  return to_float<Dtype::e8m0>(static_cast<const uint8_t*>(t.call.scales)[at]);
}

// kOne: an eight has one scale. kPacks: eights of a thread.
template <Dtype C, bool kOne, int kPacks>
__global__ void __launch_bounds__(kThreads, !kOne         ? 4
                                            : kPacks == 1 ? 6
                                                          : 8)
    dequantize_codes(const __grid_constant__ DequantizeTask t) {
  const auto* codes = static_cast<const uint8_t*>(t.call.codes);
  constexpr int kChunk = kThreads * kEight * kPacks;
  constexpr bool kTable = !kConverts<C>;  // of the values of all codes
  static_assert(kThreads == 256);
  __shared__ float values[kTable ? kThreads : 1];
  if constexpr (kTable) {
    values[threadIdx.x] = to_float<C>(static_cast<uint8_t>(threadIdx.x));
    __syncthreads();
  }
  const int64_t base = int64_t{blockIdx.x} * kChunk;
  if (t.in_eights && base + kChunk <= t.n) {
    uint2 raw[kPacks];
    float scale[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      raw[k] = *reinterpret_cast<const uint2*>(codes + i);
      if constexpr (kOne) scale[k] = scale_at(t, place_of(t, i), 0);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float v[8];
      if constexpr (kTable) {
#pragma unroll
        for (int j = 0; j < kEight; ++j)
          v[j] = values[(j < 4 ? raw[k].x : raw[k].y) >> (8 * (j % 4)) & 0xFF];
      } else {
        decode8<C>(raw[k], v);
      }
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      if constexpr (kOne) {
#pragma unroll
        for (int j = 0; j < kEight; ++j) v[j] *= scale[k];
      } else {
        const ScalePlace place = place_of(t, i);
#pragma unroll
        for (int j = 0; j < kEight; ++j) v[j] *= scale_at(t, place, j);
      }
      store_raw8(t.call.y, i, t.p.y, narrow8(v, t.p.y));
    }
    return;
  }
  for (int64_t i = base + threadIdx.x; i < min(t.n, base + kChunk); i += kThreads)
    store_float(t.call.y, i, t.p.y, to_float<C>(codes[i]) * scale_at(t, place_of(t, i), 0));
}

}  // namespace

void launch_dequantize(const DequantizeParams& p, const DequantizeCall& call) {
  DequantizeTask t{.call = call, .p = p, .n = p.rows * p.cols};
  if (t.n == 0) return;
  const bool whole_rows = p.group == 0 || p.cols % kEight == 0;
  if (p.group == 0) t.p.group = t.p.cols = t.n, t.p.block_rows = 1;
  t.across = ceil_div(t.p.cols, t.p.group);
  t.in_eights = whole_rows && is_aligned(call.codes, 8) && is_aligned(call.y, 16);
  const bool one = p.group % kEight == 0;
  t.even = one && t.p.block_rows == 1 && t.p.cols % t.p.group == 0;
  visit_format(p.codes, [&]<Dtype C>() {
    const auto launch = [&]<int kPacks>() {
      const unsigned grid = grid_of(ceil_div(t.n, kThreads * kEight * kPacks));
      one ? dequantize_codes<C, true, kPacks><<<grid, kThreads, 0, call.stream>>>(t)
          : dequantize_codes<C, false, kPacks><<<grid, kThreads, 0, call.stream>>>(t);
    };
    p.y == Dtype::f32 ? launch.template operator()<1>() : launch.template operator()<2>();
  });
  check_launch("dequantize");
}

void run_dequantize(const DequantizeParams& p, const Launch& args) {
  launch_dequantize(p, {args.operands[0], args.operands[1], args.results[0], args.stream});
}

}  // namespace octet::cuda
