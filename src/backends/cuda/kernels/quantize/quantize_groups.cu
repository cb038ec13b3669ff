// Codes in groups along the rows and in blocks of rows and columns, of a tensor or of a sum, and
// what such codes stand for: params/quantize.h.
#include <algorithm>

#include "backends/cuda/kernels/quantize/quantize_eights.cuh"
#include "backends/cuda/kernels/quantize/quantize_groups.cuh"

namespace octet::cuda {
namespace {

constexpr int kPacks = 2;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;

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

// Codes of eight values, or (kFake) what they stand for.
template <Dtype C, bool kFake>
__device__ __forceinline__ void store_eight_of(const GroupTask& t, int64_t i, float scale,
                                               float (&v)[8]) {
  const uint2 codes = encode8<C>(v, 1.0f / scale);
  if constexpr (kFake) {
    decode8<C>(codes, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] *= scale;
    store_raw8(t.y, i, t.dy, narrow8(v, t.dy));
  } else {
    *reinterpret_cast<uint2*>(t.codes + i) = codes;
  }
}

// Groups of 8, 16, ... 256 that lie one behind the other, cols being a multiple of the group. A
// group never crosses from a thread that has an eight to one that has none.
// kFake: not the codes are stored but what they stand for.
template <Dtype C, Dtype X, bool kBf16, bool kFake = false>
__global__ void __launch_bounds__(kThreads, kFake ? 5 : 4)
    quantize_even(const __grid_constant__ GroupTask t) {
  const Dtype da = known(X, t.da), db = known(X, t.db), dy = known(X, t.dy);
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
    if (t.b != nullptr) store_raw8(t.y, i, dy, narrow8(v, dy));
    const int64_t eight = i / kEight;
    const bool first = (eight & ((1 << t.lanes_log2) - 1)) == 0;
    const float scale = scale_of_group<kBf16>(t, amax, eight >> t.lanes_log2, first && !kFake);
    store_eight_of<C, kFake>(t, i, scale, v);
  }
}

// A group is a row of eights, a thread block has one: what it reads twice lies in its cache.
template <Dtype C, Dtype X, bool kFake = false>
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
  const float scale = make_scale(t.maker, amax);
  if (thread == 0 && !kFake) store_scale(t.scales, blockIdx.x, t.maker.type, scale);
  for (int64_t i = thread * kEight; i < t.cols; i += kThreads * kEight) {
    widen8(load_raw8(t.a, begin + i, da), da, v);
    store_eight_of<C, kFake>(t, begin + i, scale, v);
  }
}

// A thread block has a panel: blocks beside each other, as many as make a few eights of each
// thread, which are read twice. A thread has columns, eight by eight, and every so many rows of
// them. Maxima of threads meet in shared memory, where their order does not matter.
constexpr int kMaxScales = 1024;
// X: of x; real where it is known at run time, and places, formats and roundings may be any, and
// there may be a sum, or no codes wanted.
template <Dtype X>
constexpr bool kAny = X == Dtype::real;
// Eights that a thread loads together, and blocks of a multiprocessor.
template <Dtype X>
constexpr int kBatch = kAny<X> ? 1 : 8 / dtype_bytes(X);
template <Dtype X>
constexpr int kPanelBlocks = kAny<X> ? 4 : 5;

struct Panel {
  int64_t first;  // of its elements
  int n_rows, n_cols, n_scales;
  int first_col, first_row;  // of this thread

  __device__ __forceinline__ explicit Panel(const GroupTask& t) {
    const int64_t row = blockIdx.x * t.block_rows, col = blockIdx.y * t.panel_cols;
    first = row * t.cols + col;
    n_rows = static_cast<int>(min(t.block_rows, t.rows - row));
    n_cols = static_cast<int>(min(t.panel_cols, t.cols - col));
    n_scales = static_cast<int>(min(t.panel_scales, t.scales_across - blockIdx.y * t.panel_scales));
    const int thread = static_cast<int>(threadIdx.x);
    first_row = thread / t.width;
    first_col = (thread - first_row * t.width) * kEight;
    if (first_row >= t.step) first_row = n_rows;
  }
};

// Calls f(j, scale) for the columns col + j of an eight and the places of their scales in a panel.
template <typename F>
__device__ __forceinline__ void for_scales(const GroupTask& t, int col, F&& f) {
  const int width = static_cast<int>(t.block_cols);
  int scale = quotient(col, width), rest = col - scale * width;
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    f(j, scale);
    if (++rest == width) rest = 0, ++scale;
  }
}

template <Dtype X>
__device__ __forceinline__ void read_values(const GroupTask& t, const Eight& at, const Raw8& raw,
                                            float (&v)[8]) {
  widen8(raw, known(X, t.da), v);
  if (!kAny<X> || t.b == nullptr) return;
  float w[8];
  widen8(load_eight(t.b, t.db, at), t.db, w);
#pragma unroll
  for (int j = 0; j < kEight; ++j) v[j] += w[j];
}

// Calls f(an eight, its values) for this thread's rows of column `col` of a panel.
template <Dtype X, typename F>
__device__ __forceinline__ void for_rows(const GroupTask& t, const Panel& panel, int col, F&& f) {
  constexpr int kRows = kBatch<X>;
  if (col >= panel.n_cols) return;
  const int64_t stride = t.step * t.cols;
  Eight at{panel.first + panel.first_row * t.cols + col, panel.n_cols - col, t.in_eights};
  for (int row = panel.first_row; row < panel.n_rows; row += kRows * t.step) {
    Raw8 raw[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (row + k * t.step >= panel.n_rows) continue;
      if constexpr (kAny<X>) {
        raw[k] = load_eight(t.a, t.da, at);
      } else {
        raw[k] = load_raw8(t.a, at.i + k * stride, X);
      }
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k, at.i += stride) {
      if (row + k * t.step >= panel.n_rows) continue;
      float v[8];
      read_values<X>(t, at, raw[k], v);
      f(at, v);
    }
  }
}

struct PanelScales {
  uint32_t top[kMaxScales + kEight];  // a magnitude, then the scale, as bits of f32
  float inverse[kMaxScales + kEight];
};

// By all threads of a block.
__device__ __forceinline__ void join_tops(const GroupTask& t, const Panel& panel, int col,
                                          const float (&tops)[8], PanelScales& scales) {
  const auto join = [&](int scale, float top) {
    const uint32_t bits = __float_as_uint(top);
    if (bits > scales.top[scale]) atomicMax(scales.top + scale, bits);
  };
  float top = 0;
  if (panel.n_scales == 1) {
#pragma unroll
    for (int j = 0; j < kEight; ++j) top = fmaxf(top, tops[j]);
    top = warp_max(top);
    if (threadIdx.x % 32 == 0) join(0, top);
    return;
  }
  int last = 0;
  for_scales(t, col, [&](int j, int scale) {
    if (j > 0 && scale != last) {
      join(last, top);
      top = 0;
    }
    top = fmaxf(top, tops[j]), last = scale;
  });
  if (col < panel.n_cols) join(last, top);
}

// Scale `index` of a panel, of the maximum that is there.
__device__ __forceinline__ void make_panel_scale(const GroupTask& t, int index,
                                                 PanelScales& scales) {
  const float scale = make_scale(t.maker, __uint_as_float(scales.top[index]));
  scales.top[index] = __float_as_uint(scale);
  scales.inverse[index] = 1.0f / scale;
  if (t.scales == nullptr) return;
  const int64_t first = blockIdx.x * t.scales_across + blockIdx.y * t.panel_scales;
  store_scale(t.scales, first + index, t.maker.type, scale);
}

// The codes of values times `inverse`.
template <Dtype C, Dtype X>
__device__ __forceinline__ uint2 encode_values(const GroupTask& t, const float (&inverse)[8],
                                               float (&v)[8]) {
#pragma unroll
  for (int j = 0; j < kEight; ++j) v[j] *= inverse[j];
  if constexpr (kAny<X>) {
    return encode_rounded8<C>(v, t.rounding, t.source);
  } else {
    return encode8<C>(v, 1.0f);
  }
}

// A sum is written, where it may lie in an operand, by the thread that has read both just before.
template <Dtype C, Dtype X>
__global__ void __launch_bounds__(kThreads, kPanelBlocks<X>)
    quantize_panel(const __grid_constant__ GroupTask t) {
  __shared__ PanelScales scales;
  const Panel panel(t);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < panel.n_scales; i += kThreads) scales.top[i] = 0;
  __syncthreads();
  for (int first = 0; first < panel.n_cols; first += kThreads * kEight) {
    const int col = first + panel.first_col;
    float tops[8] = {};
    for_rows<X>(t, panel, col, [&](const Eight&, float(&v)[8]) {
#pragma unroll
      for (int j = 0; j < kEight; ++j) tops[j] = fmaxf(tops[j], finite_magnitude(v[j]));
    });
    join_tops(t, panel, col, tops, scales);
  }
  __syncthreads();
  for (int i = thread; i < panel.n_scales; i += kThreads) make_panel_scale(t, i, scales);
  __syncthreads();
  for (int col = panel.first_col; col < panel.n_cols; col += kThreads * kEight) {
    float inverse[8];
    for_scales(t, col, [&](int j, int scale) { inverse[j] = scales.inverse[scale]; });
    for_rows<X>(t, panel, col, [&](const Eight& at, float(&v)[8]) {
      if (kAny<X> && t.b != nullptr) store_eight(t.y, t.dy, at, v);
      const uint2 codes = encode_values<C, X>(t, inverse, v);
      if (!kAny<X> || t.codes != nullptr)
        return store_codes(t.codes + at.i, codes, at.n, !kAny<X> || t.in_eights);
      decode8<C>(codes, v);
      for_scales(t, col, [&](int j, int scale) { v[j] *= __uint_as_float(scales.top[scale]); });
      store_eight(t.y, t.dy, at, v);
    });
  }
}

template <Dtype C, Dtype X>
void launch_panels(GroupTask t, cudaStream_t stream) {
  t.block_rows = std::min(t.block_rows, t.rows);
  t.block_cols = std::min(t.block_cols, t.cols);
  t.scales_across = ceil_div(t.cols, t.block_cols);
  const int64_t wanted = kThreads * kEight * kBatch<X> / (t.block_rows * t.block_cols);
  int64_t n_across = std::clamp<int64_t>(wanted, 1, kMaxScales);
  if (t.block_cols % kEight != 0) n_across = ceil_div(n_across, kEight) * kEight;
  t.panel_scales = n_across;
  t.panel_cols = n_across * t.block_cols;
  const int64_t n_cols = std::min(t.panel_cols, t.cols);
  t.width = static_cast<int>(std::min<int64_t>(ceil_div(n_cols, kEight), kThreads));
  t.step = kThreads / t.width;
  grid_of(t.block_rows + kThreads * kBatch<X>);  // a panel's rows and columns fit in 32 bits
  grid_of(n_cols + kThreads * kEight);
  const dim3 grid(grid_of(ceil_div(t.rows, t.block_rows)), grid_of(ceil_div(t.cols, t.panel_cols)));
  quantize_panel<C, X><<<grid, kThreads, 0, stream>>>(t);
}

// Launch of eights, to nearest: even groups, whole rows, tiles, and what else there is.
template <Dtype C, Dtype X>
void launch_eights(const GroupTask& t, GroupKernel kernel, cudaStream_t stream) {
  const unsigned even = grid_of(ceil_div(t.rows * t.cols, kChunk)), rows = grid_of(t.rows);
  if (kernel == GroupKernel::even) {
    const bool is_bf16 = t.maker.rule == ScaleRule::linear && t.maker.type == Dtype::bf16;
    is_bf16 ? quantize_even<C, X, true><<<even, kThreads, 0, stream>>>(t)
            : quantize_even<C, X, false><<<even, kThreads, 0, stream>>>(t);
    return;
  }
  if (kernel == GroupKernel::row) return quantize_row<C, X><<<rows, kThreads, 0, stream>>>(t);
  if constexpr (is_fp8(C) && X == Dtype::bf16) {
    if (kernel == GroupKernel::tile) return launch_tiles(t, C, stream);
  }
  launch_panels<C, X>(t, stream);
}
// The same of any format, or of what codes stand for: even groups and whole rows.
template <Dtype C, bool kFake>
void launch_simple(const GroupTask& t, GroupKernel kernel, cudaStream_t stream) {
  const unsigned even = grid_of(ceil_div(t.rows * t.cols, kChunk)), rows = grid_of(t.rows);
  kernel == GroupKernel::even
      ? quantize_even<C, Dtype::real, false, kFake><<<even, kThreads, 0, stream>>>(t)
      : quantize_row<C, Dtype::real, kFake><<<rows, kThreads, 0, stream>>>(t);
}

// log2 of group / 8 for the groups that quantize_even takes, -1 for others.
int lanes_log2_of(const GroupTask& t) {
  for (int k = 0; t.block_rows == 1 && k <= 5; ++k) {
    if (t.block_cols == int64_t{kEight} << k && t.cols % t.block_cols == 0) return k;
  }
  return -1;
}

void launch_groups(GroupTask t, Dtype codes, GroupChoice choice, cudaStream_t stream) {
  if (t.rows == 0 || t.cols == 0) return;
  // A plan's addresses are aligned; those that others bring may lie anywhere.
  if (!is_aligned(t.a, 16) || !is_aligned(t.b, 16) || !is_aligned(t.y, 16) ||
      !is_aligned(t.codes, 8))
    choice = {};
  t.in_eights = choice.in_eights;
  t.lanes_log2 = lanes_log2_of(t);
  const GroupKernel kernel = choice.kernel;
  if (choice.is_typed) {
    const bool alike = t.b == nullptr || (t.da == t.db && t.da == t.dy);
    visit_codes(codes, [&]<Dtype C>() {
      visit_common(t.da, alike, [&]<Dtype X>() { launch_eights<C, X>(t, kernel, stream); });
    });
  } else if (kernel != GroupKernel::panel) {
    visit_format(codes, [&]<Dtype C>() {
      t.codes == nullptr ? launch_simple<C, true>(t, kernel, stream)
                         : launch_simple<C, false>(t, kernel, stream);
    });
  } else {
    visit_format(codes, [&]<Dtype C>() { launch_panels<C, Dtype::real>(t, stream); });
  }
  check_launch("quantize_groups");
}

ScaleMaker maker_of(float target, ScaleRule rule, Dtype type) {
  return {target, 1.0f / target, rule, type};
}

}  // namespace

void run_groups(const GroupParams& p, const Launch& args) {
  const int out = p.adds ? 1 : 0;
  launch_groups({.a = args.operands[0],
                 .b = p.adds ? args.operands[1] : nullptr,
                 .y = p.adds ? args.results[0] : nullptr,
                 .codes = args.out<uint8_t>(out),
                 .scales = args.results[out + 1],
                 .rows = p.rows,
                 .cols = p.cols,
                 .block_cols = p.group,
                 .maker = maker_of(p.target, p.rule, p.scales),
                 .da = p.a,
                 .db = p.b,
                 .dy = p.sum},
                p.codes, p.choice, args.stream);
}

void run_blocks(const BlockParams& p, const Launch& args) {
  launch_groups({.a = args.operands[0],
                 .codes = args.out<uint8_t>(0),
                 .scales = args.results[1],
                 .rows = p.rows,
                 .cols = p.cols,
                 .block_rows = p.block_rows,
                 .block_cols = p.block_cols,
                 .maker = maker_of(p.target, p.rule, p.scales),
                 .da = p.x,
                 .rounding = p.rounding,
                 .source = p.source},
                p.codes, p.choice, args.stream);
}

void run_fake(const FakeQuantizeParams& p, const Launch& args) {
  launch_groups({.a = args.operands[0],
                 .y = args.results[0],
                 .rows = p.rows,
                 .cols = p.cols,
                 .block_cols = p.group,
                 .maker = p.power ? maker_of(p.target, ScaleRule::power_ceil, Dtype::e8m0)
                                  : maker_of(p.target, ScaleRule::linear, Dtype::f32),
                 .da = p.x,
                 .dy = p.y},
                p.format, p.choice, args.stream);
}

}  // namespace octet::cuda
