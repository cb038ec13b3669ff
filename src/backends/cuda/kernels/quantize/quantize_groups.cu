// Codes in groups along the rows, of a tensor or of a sum, and the way back: params/quantize.h.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/quantize/quantize.cuh"

namespace octet::cuda {
namespace {

constexpr int kPacks = 2;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;

struct GroupTask {
  const void* a;
  const void* b;  // nullptr: nothing is added, and no sum is written
  void* sum;      // may be a or b
  uint8_t* codes;
  void* scales;
  int64_t rows, cols, group;
  ScaleMaker maker;
  Dtype da, db, dsum;
  int lanes_log2;  // of the threads that share a group of 8 << lanes_log2
};

__device__ __forceinline__ float finite_magnitude(float x) {
  const float magnitude = fabsf(x);
  return magnitude < __uint_as_float(kF32Inf) ? magnitude : 0.0f;  // NaN compares false
}

// The scale of group `at`, stored where that is wanted. kBf16: of the linear rule, in BF16.
template <bool kBf16>
__device__ __forceinline__ float scale_of_group(const GroupTask& t, float amax, int64_t at,
                                                bool stores) {
  if constexpr (kBf16) {
    const uint16_t scale = group_scale(amax, t.maker.inv_target);
    if (stores) static_cast<uint16_t*>(t.scales)[at] = scale;
    return to_float<Dtype::bf16>(scale);
  } else {
    const float scale = make_scale(t.maker, amax);
    if (stores) store_scale(t.scales, at, t.maker.type, scale);
    return scale;
  }
}

// Groups of 8, 16, ... 256 that lie one behind the other, cols being a multiple of the group. A
// group never crosses from a thread that has an eight to one that has none.
template <Dtype C, Dtype X, bool kBf16>
__global__ void __launch_bounds__(kThreads, 4) quantize_even(const __grid_constant__ GroupTask t) {
  const Dtype da = known(X, t.da), db = known(X, t.db), dsum = known(X, t.dsum);
  const int64_t n = t.rows * t.cols;
  const int64_t base = int64_t{blockIdx.x} * kChunk + threadIdx.x * kEight;
  Raw8 a[kPacks], b[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = base + p * kThreads * kEight;
    a[p] = b[p] = Raw8{};
    if (i >= n) continue;
    a[p] = load_raw8(t.a, i, da);
    if (t.b != nullptr) b[p] = load_raw8(t.b, i, db);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = base + p * kThreads * kEight;
    float v[8];
    widen8(a[p], da, v);
    if (t.b != nullptr) {
      float w[8];
      widen8(b[p], db, w);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += w[j];
    }
    float amax = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) amax = fmaxf(amax, finite_magnitude(v[j]));
    for (int k = 0; k < t.lanes_log2; ++k) amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1 << k));
    if (i >= n) continue;
    if (t.b != nullptr) store_raw8(t.sum, i, dsum, narrow8(v, dsum));
    const int64_t eight = i / kEight;
    const bool first = (eight & ((1 << t.lanes_log2) - 1)) == 0;
    const float inv_scale = 1.0f / scale_of_group<kBf16>(t, amax, eight >> t.lanes_log2, first);
    *reinterpret_cast<uint2*>(t.codes + i) = encode8<C>(v, inv_scale);
  }
}

__device__ __forceinline__ float value_at(const GroupTask& t, int64_t i) {
  const float a = load_float(t.a, i, t.da);
  return t.b == nullptr ? a : a + load_float(t.b, i, t.db);
}

// Groups of any size, rows of any length: one warp a group. The second reading comes before the
// sum, which may lie in an operand, is written: element by element by the same thread.
template <Dtype C>
__global__ void __launch_bounds__(kThreads) quantize_ragged(const __grid_constant__ GroupTask t) {
  const int lane = threadIdx.x % 32;
  const int64_t per_row = (t.cols + t.group - 1) / t.group;
  const int64_t at = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  if (at >= t.rows * per_row) return;
  const int64_t row = at / per_row, first = at % per_row * t.group;
  const int64_t begin = row * t.cols + first;
  const int64_t end = row * t.cols + min(t.cols, first + t.group);
  float amax = 0;
  for (int64_t i = begin + lane; i < end; i += 32)
    amax = fmaxf(amax, finite_magnitude(value_at(t, i)));
  const float scale = make_scale(t.maker, warp_max(amax));
  const float inv_scale = 1.0f / scale;
  for (int64_t i = begin + lane; i < end; i += 32) {
    const float v = value_at(t, i);
    if (t.b != nullptr) store_float(t.sum, i, t.dsum, v);
    t.codes[i] = from_float<C>(v * inv_scale);
  }
  if (lane == 0) store_scale(t.scales, at, t.maker.type, scale);
}

// A group is a row of eights, a thread block has one: what it reads twice lies in its cache.
template <Dtype C, Dtype X>
__global__ void __launch_bounds__(kThreads) quantize_row(const __grid_constant__ GroupTask t) {
  __shared__ float tops[kThreads / 32];
  const Dtype da = known(X, t.da);
  const int64_t begin = int64_t{blockIdx.x} * t.cols;
  const int thread = static_cast<int>(threadIdx.x);
  float amax = 0, v[8];
  for (int64_t i = thread * kEight; i < t.cols; i += kThreads * kEight) {
    widen8(load_raw8(t.a, begin + i, da), da, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) amax = fmaxf(amax, finite_magnitude(v[j]));
  }
  amax = warp_max(amax);
  if (thread % 32 == 0) tops[thread / 32] = amax;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) amax = fmaxf(amax, tops[w]);
  const float scale = make_scale(t.maker, amax), inv_scale = 1.0f / scale;
  if (thread == 0) store_scale(t.scales, blockIdx.x, t.maker.type, scale);
  for (int64_t i = thread * kEight; i < t.cols; i += kThreads * kEight) {
    widen8(load_raw8(t.a, begin + i, da), da, v);
    *reinterpret_cast<uint2*>(t.codes + begin + i) = encode8<C>(v, inv_scale);
  }
}

// log2 of group / 8 for the groups that quantize_even takes, -1 for others.
int lanes_log2_of(const GroupParams& p) {
  for (int k = 0; k <= 5; ++k) {
    if (p.group == int64_t{kEight} << k && p.cols % p.group == 0) return k;
  }
  return -1;
}

void run_groups(const GroupParams& p, const Launch& args) {
  if (p.rows == 0 || p.cols == 0) return;
  const int out = p.adds ? 1 : 0;
  const GroupTask t{.a = args.operands[0],
                    .b = p.adds ? args.operands[1] : nullptr,
                    .sum = p.adds ? args.results[0] : nullptr,
                    .codes = args.out<uint8_t>(out),
                    .scales = args.results[out + 1],
                    .rows = p.rows,
                    .cols = p.cols,
                    .group = p.group,
                    .maker = {p.target, 1.0f / p.target, p.rule, p.scales},
                    .da = p.a,
                    .db = p.b,
                    .dsum = p.sum,
                    .lanes_log2 = lanes_log2_of(p)};
  const bool in_eights = p.cols % kEight == 0 && is_gemm_operand(p.codes) && is_aligned(t.a, 16) &&
                         is_aligned(t.b, 16) && is_aligned(t.sum, 16) && is_aligned(t.codes, 8);
  const bool even = t.lanes_log2 >= 0 && in_eights;
  const int64_t n_groups = p.rows * ceil_div(p.cols, p.group);
  if (even) {
    const unsigned grid = grid_of(ceil_div(p.rows * p.cols, kChunk));
    const bool is_bf16 = p.rule == ScaleRule::linear && p.scales == Dtype::bf16;
    visit_codes(p.codes, [&]<Dtype C>() {
      visit_common(p.a, p.a == p.b && p.a == p.sum, [&]<Dtype X>() {
        is_bf16 ? quantize_even<C, X, true><<<grid, kThreads, 0, args.stream>>>(t)
                : quantize_even<C, X, false><<<grid, kThreads, 0, args.stream>>>(t);
      });
    });
  } else if (in_eights && p.group >= p.cols && !p.adds) {
    visit_codes(p.codes, [&]<Dtype C>() {
      visit_common(p.a, true, [&]<Dtype X>() {
        quantize_row<C, X><<<grid_of(p.rows), kThreads, 0, args.stream>>>(t);
      });
    });
  } else {
    const unsigned grid = grid_of(ceil_div(n_groups, kThreads / 32));
    visit_format(p.codes,
                 [&]<Dtype C>() { quantize_ragged<C><<<grid, kThreads, 0, args.stream>>>(t); });
  }
  check_launch("quantize_groups");
}

struct DequantizeTask {
  const uint8_t* codes;
  const void* scales;
  void* y;
  int64_t n, cols, group, per_row;
  Dtype dscales, dy;
  bool even = false;  // an eight has one scale, number i / group, and is aligned
};

__device__ __forceinline__ float scale_at(const DequantizeTask& t, int64_t i) {
  if (t.group == 0) return load_float(t.scales, 0, t.dscales);
  const int64_t at = t.even ? i / t.group : i / t.cols * t.per_row + i % t.cols / t.group;
  return load_float(t.scales, at, t.dscales);
}

template <Dtype C>
__global__ void __launch_bounds__(kThreads)
    dequantize_codes(const __grid_constant__ DequantizeTask t) {
  const int64_t base = int64_t{blockIdx.x} * kChunk;
  if (t.even && base + kChunk <= t.n) {
    uint2 codes[kPacks];
    float scale[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = base + (p * kThreads + threadIdx.x) * kEight;
      codes[p] = *reinterpret_cast<const uint2*>(t.codes + i);
      scale[p] = scale_at(t, i);
    }
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float v[8];
      decode8<C>(codes[p], v);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] *= scale[p];
      const int64_t i = base + (p * kThreads + threadIdx.x) * kEight;
      store_raw8(t.y, i, t.dy, narrow8(v, t.dy));
    }
    return;
  }
  for (int64_t i = base + threadIdx.x; i < min(t.n, base + kChunk); i += kThreads)
    store_float(t.y, i, t.dy, to_float<C>(t.codes[i]) * scale_at(t, i));
}

void run_dequantize(const DequantizeParams& p, const Launch& args) {
  launch_dequantize(p, {args.operands[0], args.operands[1], args.results[0], args.stream});
}

}  // namespace

void launch_dequantize(const DequantizeParams& p, const DequantizeCall& call) {
  if (p.block_rows > 1 || p.scales == Dtype::e8m0 || !is_gemm_operand(p.codes))
    return launch_dequantize_blocks(p, call);
  DequantizeTask t{.codes = static_cast<const uint8_t*>(call.codes),
                   .scales = call.scales,
                   .y = call.y,
                   .n = p.rows * p.cols,
                   .cols = p.cols,
                   .group = p.group,
                   .per_row = p.group == 0 ? 1 : ceil_div(p.cols, p.group),
                   .dscales = p.scales,
                   .dy = p.y};
  if (t.n == 0) return;
  const bool one_scale = p.group == 0 || (p.group % kEight == 0 && p.cols % p.group == 0);
  t.even = one_scale && is_aligned(t.codes, 8) && is_aligned(t.y, 16);
  const unsigned grid = grid_of(ceil_div(t.n, kChunk));
  visit_codes(p.codes,
              [&]<Dtype C>() { dequantize_codes<C><<<grid, kThreads, 0, call.stream>>>(t); });
  check_launch("dequantize");
}

std::unique_ptr<Prepared> prepare_groups(const Request& request) {
  return stateless<GroupParams, run_groups>(request);
}
std::unique_ptr<Prepared> prepare_dequantize(const Request& request) {
  return stateless<DequantizeParams, run_dequantize>(request);
}

}  // namespace octet::cuda
