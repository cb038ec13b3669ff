// Gradients of RMSNorm and LayerNorm. A block takes a row at a time, held in registers, the next on
// its way; the sums over its rows for dw and db stay in registers too, go to scratch at the end and
// are added over the blocks by a second kernel. The order of all sums is that of
// backends/cpu/reference/card_norm.cpp.
#include "backends/cuda/kernels/common/layer.cuh"
#include "backends/cuda/kernels/common/row_amax.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"
#include "backends/cuda/kernels/common/row_sum.cuh"

namespace octet::cuda {
namespace {

constexpr int kMaxThreads = kFastCols / kChunk;

struct GradArgs {
  Matrix dy, x;
  Unquantized weight, addend, dx;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  float* partial = nullptr;  // [1 or 2, blocks, cols]: dw, db; null where there is no weight
  int64_t rows = 0, cols = 0;
  bool centred = false;
  AmaxArgs amax;
};

// Two sums at once, as block_sum.
__device__ __forceinline__ float2 block_sums(float2 v, float2* slots) {
  const auto warp_sums = [](float2 s) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
      s.x += __shfl_xor_sync(~0u, s.x, d);
      s.y += __shfl_xor_sync(~0u, s.y, d);
    }
    return s;
  };
  v = warp_sums(v);
  const int n_warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (n_warps == 1) return v;
  if (lane == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_sums(lane < n_warps ? slots[lane] : make_float2(0, 0));
}

// One row's sixteen elements in a thread: h = (x - mean) rstd in place of x, dy; what they add to
// dw and db; then dx in place of dy.
template <bool kCentred, Form P>
struct GradRow {
  float h[kChunk], g[kChunk];

  __device__ __forceinline__ void add_to(const NormRow& row, float (&dw)[kChunk],
                                         float (&db)[kChunk]) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      h[i] = normalized<kCentred>(h[i], row);
      dw[i] = fmaf(g[i], h[i], dw[i]);
      if constexpr (kCentred) db[i] += g[i];
    }
  }
  // g = dy weight, and its sums: of g h and of g.
  __device__ __forceinline__ float2 weigh(const Raw<P>& weight, bool weighted) {
    if (weighted) {
      float w[kChunk];
      unpack<P>(weight, w);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) g[i] *= w[i];
    }
    float2 sums = make_float2(0, 0);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      sums.x = fmaf(g[i], h[i], sums.x);
      if constexpr (kCentred) sums.y += g[i];
    }
    return sums;
  }
  __device__ __forceinline__ void finish(float2 sums, float cols, float rstd) {
    const RowMeans mean{sums.x / cols, kCentred ? sums.y / cols : 0.0f};
#pragma unroll
    for (int i = 0; i < kChunk; ++i) g[i] = norm_gradient<kCentred>(g[i], h[i], mean, rstd);
  }
  __device__ __forceinline__ void add(const Raw<P>& addend, bool there) {
    if (!there) return;
    float c[kChunk];
    unpack<P>(addend, c);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) g[i] += c[i];
  }
};

// Prefetches a row of `bytes` bytes into the cache, 128 bytes a thread; nothing waits for it.
// There are threads enough: one for sixteen elements.
__device__ __forceinline__ void prefetch_row(const void* data, int64_t row, int bytes) {
  const int at = static_cast<int>(threadIdx.x) * 128;
  if (at < bytes)
    asm volatile(
        "prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(data) + row * bytes + at));
}
template <Form F>
__device__ __forceinline__ void prefetch_matrix(const Matrix& m, int64_t row) {
  const auto cols = static_cast<int>(m.cols);
  prefetch_row(m.data, row, cols * (F == Form::f32 ? 4 : is_short(F) ? 2 : 1));
  if constexpr (F == Form::groups) prefetch_row(m.scales, row, cols / kChunk * 2);
}

// Registers hold one row that is on its way, and its addend not yet; the cache takes more.
template <Form F>
__device__ __forceinline__ void prefetch_rows(const GradArgs& a, int64_t next, int64_t after) {
  constexpr int kBytes = kUnquantized<F> == Form::f32 ? 4 : 2;
  if (a.addend.data != nullptr && next < a.rows)
    prefetch_row(a.addend.data, next, static_cast<int>(a.cols) * kBytes);
  if (after >= a.rows) return;
  prefetch_matrix<F>(a.x, after);
  prefetch_matrix<kUnquantized<F>>(a.dy, after);
}

template <bool kCentred, Form F>
__global__ void __launch_bounds__(kMaxThreads, 1) norm_grad(const __grid_constant__ GradArgs a) {
  constexpr int W = kWidth<F>;
  constexpr Form P = kUnquantized<F>;
  constexpr bool kLate = kCentred && F == Form::f32;  // no registers left for the addend
  constexpr bool kAmax = F != Form::f32;              // nor for a maximum
  __shared__ float2 slots[2][kMaxWarps];
  const int n_chunks = static_cast<int>(a.cols / kChunk), t = threadIdx.x;
  const bool active = t < n_chunks;
  const Place columns{t * W, n_chunks * W, active ? INT64_MAX : 0};
  const auto place = [&](int64_t row) {
    return Place{row * a.cols + columns.at, columns.step, columns.end};
  };
  const Raw<P> weight = load_vector<F>(a.weight, columns);
  float dw[kChunk] = {}, db[kChunk] = {};
  Raw<F> next_x = {};
  Raw<P> next_dy = {};
  NormRow next_stats{0, 0};
  LargestWritten largest(a.amax);
  const auto fetch = [&](int64_t row) {
    if (row >= a.rows) return;
    next_x = load_matrix<F, W>(a.x, place(row));
    next_dy = load_matrix<P, W>(a.dy, place(row));
    next_stats = {kCentred ? a.mean[row] : 0.0f, a.rstd[row]};
  };
  fetch(blockIdx.x);
  prefetch_rows<F>(a, blockIdx.x, int64_t{blockIdx.x} + gridDim.x);
  int parity = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, parity ^= 1) {
    GradRow<kCentred, P> r;
    unpack<F>(next_x, r.h);
    unpack<P>(next_dy, r.g);
    const NormRow stats = next_stats;
    fetch(row + gridDim.x);
    prefetch_rows<F>(a, row + gridDim.x, row + 2 * gridDim.x);
    Raw<P> addend = {};
    const auto fetch_addend = [&] {
      if (a.addend.data != nullptr) addend = load_raw<P, W>(a.addend.data, nullptr, place(row));
    };
    if constexpr (!kLate) fetch_addend();
    r.add_to(stats, dw, db);
    const float2 mine = r.weigh(weight, a.weight.data != nullptr);
    const float2 sums = block_sums(active ? mine : make_float2(0, 0), slots[parity]);
    r.finish(sums, static_cast<float>(a.cols), stats.rstd);
    if constexpr (kLate) fetch_addend();
    r.add(addend, a.addend.data != nullptr);
    if constexpr (kAmax) {
      store_float<W, kShort<F>>(a.dx, place(row), r.g, largest);
    } else {
      store_float<W, kShort<F>>(a.dx, place(row), r.g);
    }
  }
  if (kAmax && largest.wanted) end_amax(a.amax, active ? largest.all() : Largest{});
  if (a.partial == nullptr) return;
  store_float<W>({a.partial, Dtype::f32}, place(blockIdx.x), dw);
  if constexpr (kCentred)
    store_float<W>({a.partial + gridDim.x * a.cols, Dtype::f32}, place(blockIdx.x), db);
}

// Any types, any number of columns. A thread's columns are its own in the partial sums too.
__global__ void __launch_bounds__(kMaxThreads) norm_grad_any(const __grid_constant__ GradArgs a) {
  __shared__ float2 slots[2][kMaxWarps];
  const float cols = static_cast<float>(a.cols);
  float* const dw = a.partial == nullptr ? nullptr : a.partial + blockIdx.x * a.cols;
  float* const db = dw == nullptr || !a.centred ? nullptr : dw + gridDim.x * a.cols;
  each_column(a.x, [&](int64_t c, int) {
    if (dw != nullptr) dw[c] = 0;
    if (db != nullptr) db[c] = 0;
  });
  int parity = 0;
  Largest largest;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, parity ^= 1) {
    const NormRow stats{a.centred ? a.mean[row] : 0.0f, a.rstd[row]};
    float2 sums = make_float2(0, 0);
    each_column(a.x, [&](int64_t c, int) {
      const float dy = load_any(a.dy, row, c);
      const float h = normalized(load_any(a.x, row, c), stats);
      const float g = dy * load_or(a.weight, c, 1.0f);
      sums.x = fmaf(g, h, sums.x);
      sums.y += g;
      if (dw != nullptr) dw[c] = fmaf(dy, h, dw[c]);
      if (db != nullptr) db[c] += dy;
    });
    sums = block_sums(sums, slots[parity]);
    const RowMeans mean{sums.x / cols, a.centred ? sums.y / cols : 0.0f};
    each_column(a.x, [&](int64_t c, int) {
      const float h = normalized(load_any(a.x, row, c), stats);
      const float g = load_any(a.dy, row, c) * load_or(a.weight, c, 1.0f);
      const int64_t at = row * a.cols + c;
      const float dx = norm_gradient(g, h, mean, stats.rstd);
      const float sum = a.addend.data == nullptr ? dx : dx + load_or(a.addend, at, 0.0f);
      store_any(a.dx, at, sum);
      largest.add(as_written(a.dx.dtype, sum));
    });
  }
  if (a.amax.partial != nullptr) end_amax(a.amax, largest);
}

using GradKernel = void (*)(GradArgs);
template <bool kCentred>
GradKernel kernel_of(Form form) {
  if (form == Form::groups) return norm_grad<kCentred, Form::groups>;
  if (form == Form::f32) return norm_grad<kCentred, Form::f32>;
  return form == Form::fp16 ? norm_grad<kCentred, Form::fp16> : norm_grad<kCentred, Form::bf16>;
}

class NormGrad : public Prepared {
 public:
  explicit NormGrad(const NormGradParams& params)
      : p_(params), n_blocks_(grad_blocks(p_.rows, p_.cols)) {
    threads_ = static_cast<unsigned>(column_threads(p_.cols));
    if (p_.kernel == RowKernel::norm_grad_any) return;
    threads_ = static_cast<unsigned>(ceil_div(p_.cols / kChunk, 32) * 32);
    kernel_ =
        p_.layer == RowLayer::layer_norm ? kernel_of<true>(p_.form) : kernel_of<false>(p_.form);
  }

  void launch(const Launch& launch) override {
    const GradArgs a = args_of(launch);
    if (p_.cols == 0 && p_.amax.amax_at == kAbsent) return;
    const GradKernel kernel = kernel_;
    kernel<<<static_cast<unsigned>(n_blocks_), threads_, 0, launch.stream>>>(a);
    check_launch("norm_grad");
    if (a.partial == nullptr || p_.cols == 0) return;
    launch_sum_parts(a.partial, {n_blocks_, p_.cols},
                     {result_of(p_.dw, launch), result_of(p_.db, launch)}, launch.stream);
  }

 private:
  GradArgs args_of(const Launch& launch) const {
    GradArgs a;
    a.dy = matrix_of(p_.dy, p_.cols, launch);
    a.x = matrix_of(p_.x, p_.cols, launch);
    a.weight = operand_of(p_.weight, launch);
    a.addend = operand_of(p_.addend, launch);
    a.dx = result_of(p_.dx, launch);
    a.mean = operand_at<float>(launch, p_.mean_at);
    a.rstd = operand_at<float>(launch, p_.rstd_at);
    a.rows = p_.rows;
    a.cols = p_.cols;
    a.centred = p_.layer == RowLayer::layer_norm;
    a.amax = amax_of(p_.amax, launch);
    // Behind the partial maxima.
    if (p_.weight.at != kAbsent)
      a.partial =
          static_cast<float*>(launch.scratch) + (p_.amax.amax_at == kAbsent ? 0 : kRowBlocks);
    return a;
  }

  NormGradParams p_;
  int64_t n_blocks_;
  unsigned threads_ = 256;
  GradKernel kernel_ = norm_grad_any;
};

std::unique_ptr<Prepared> prepare_norm_grad(const Request& request) {
  return std::make_unique<NormGrad>(request.get<NormGradParams>());
}

const KernelEntry kRows[] = {{KernelId::norm_grad, prepare_norm_grad}};

}  // namespace

std::span<const KernelEntry> norm_grad_kernels() {
  return kRows;
}

}  // namespace octet::cuda
