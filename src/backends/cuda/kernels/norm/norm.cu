// RMSNorm and LayerNorm of rows: a block takes a row at a time and holds it in registers between
// its statistics and its result; the next row is on its way meanwhile. The order of its sums is
// that of backends/cpu/reference/card_norm.cpp.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/layer.cuh"

namespace octet::cuda {
namespace {

constexpr int kMaxThreads = kFastCols / kChunk;

// Sums over the block, each with slots of its own until the next but one.
struct BlockSums {
  float (*slots)[kMaxWarps];
  int n_calls = 0;

  __device__ float operator()(float v) { return block_sum(v, slots[n_calls++ % 2]); }
};

// The mean first, then the squares about it.
template <bool kCentred>
__device__ __forceinline__ NormRow statistics_of(const float (&v)[kChunk], bool active,
                                                 const LayerArgs& a, BlockSums& sum) {
  const auto cols = static_cast<float>(a.cols);
  NormRow row{0, 1};
  if constexpr (kCentred) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) s += v[i];
    row.mean = sum(s) / cols;
  }
  float s0 = 0, s1 = 0;
#pragma unroll
  for (int i = 0; i < kChunk; i += 2) {
    const float d0 = kCentred ? v[i] - row.mean : v[i];
    const float d1 = kCentred ? v[i + 1] - row.mean : v[i + 1];
    s0 = fmaf(d0, d0, s0);
    s1 = fmaf(d1, d1, s1);
  }
  row.rstd = rstd_of(sum(active ? s0 + s1 : 0.0f), cols, a.eps);
  return row;
}

__device__ __forceinline__ void keep(const LayerArgs& a, int64_t row, const NormRow& made) {
  if (threadIdx.x != 0) return;
  if (a.mean != nullptr) a.mean[row] = made.mean;
  if (a.rstd != nullptr) a.rstd[row] = made.rstd;
}

template <bool kCentred>
__device__ __forceinline__ NormRow known_row(const LayerArgs& a, int64_t row) {
  return {kCentred ? a.mean[row] : 0.0f, a.rstd[row]};
}

// Threads that a multiprocessor holds: 64 registers each, or 128 where there is more to keep.
template <bool kCentred, Form F>
inline constexpr int kResident = kCentred || F == Form::f32 ? 512 : 1024;

template <bool kCentred, Form F, Out O>
__global__ void __launch_bounds__(kMaxThreads, kResident<kCentred, F> / kMaxThreads)
    norm_rows(const __grid_constant__ LayerArgs a) {
  constexpr int W = kWidth<F>;
  __shared__ float slots[2][kMaxWarps];
  wait_for_previous();
  start_next();
  const Encoding e = begin_pass(a.scale);
  const bool second = a.scale.pass == Pass::second;
  if (second && !e.codes) return;
  const int n_chunks = static_cast<int>(a.cols / kChunk), t = threadIdx.x;
  const bool active = t < n_chunks;
  const Place columns{t * W, n_chunks * W, active ? INT64_MAX : 0};
  const auto place = [&](int64_t row) {
    return Place{row * a.cols + columns.at, columns.step, columns.end};
  };
  const Affine<F> affine = load_affine<kCentred, F>(a, columns);
  BlockSums sum{slots};
  Largest largest;
  Raw<F> next = {};
  NormRow next_known{0, 1};
  // The second pass goes backwards: what the first read last is still near.
  const auto row_at = [&](int64_t i) { return second ? a.rows - 1 - i : i; };
  const auto fetch = [&](int64_t i) {
    if (i >= a.rows) return;
    next = load_matrix<F, W>(a.x, place(row_at(i)));
    if (a.known) next_known = known_row<kCentred>(a, row_at(i));
  };
  fetch(blockIdx.x);
  for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
    const int64_t row = row_at(i);
    float v[kChunk];
    unpack<F>(next, v);
    NormRow made = next_known;
    fetch(i + gridDim.x);
    if (!a.known) {
      made = statistics_of<kCentred>(v, active, a, sum);
      keep(a, row, made);
    }
    normalize<kCentred, F>(made, affine, v);
    if (e.amax && active) largest.add(v);
    if constexpr (O == Out::unquantized) {
      store_float<W, kShort<F>>(a.y, place(row), v);
    } else if (e.codes) {
      e.apply_limit(v);
      store_codes<kCode<O>, W>(a.codes, place(row), v, e.inv_scale);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

// Any types, any number of columns: a row is read once for each of its sums.
__device__ NormRow any_statistics(const LayerArgs& a, int64_t row, BlockSums& sum) {
  const auto cols = static_cast<float>(a.cols);
  NormRow made{0, 1};
  if (a.layer == RowLayer::layer_norm) {
    float s = 0;
    each_column(a.x, [&](int64_t c, int) { s += load_any(a.x, row, c); });
    made.mean = sum(s) / cols;
  }
  float even = 0, odd = 0;
  each_column(a.x, [&](int64_t c, int k) {
    const float d = load_any(a.x, row, c) - made.mean;
    float& of = k % 2 == 0 ? even : odd;
    of = fmaf(d, d, of);
  });
  made.rstd = rstd_of(sum(even + odd), cols, a.eps);
  return made;
}

__global__ void __launch_bounds__(kMaxThreads) norm_rows_any(const __grid_constant__ LayerArgs a) {
  __shared__ float slots[2][kMaxWarps];
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  BlockSums sum{slots};
  Largest largest;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    NormRow made;
    if (a.known) {
      made = a.layer == RowLayer::layer_norm ? known_row<true>(a, row) : known_row<false>(a, row);
    } else {
      made = any_statistics(a, row, sum);
      keep(a, row, made);
    }
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
      const float v = norm_value(a, load_any(a.x, row, c), made, c);
      if (e.amax) largest.add(v);
      emit_any(a, row * a.cols + c, v, e);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

// Kernels of vectors, and of codes that no kernel of codes takes.
template <bool kCentred, Form F>
LayerKernel kernel_of(Out out) {
  if (out == Out::unquantized) return norm_rows<kCentred, F, Out::unquantized>;
  if constexpr (is_short(F)) {
    if (out == Out::hif8) return norm_rows<kCentred, F, Out::hif8>;
  }
  return norm_rows<kCentred, F, Out::e4m3>;
}
template <bool kCentred>
LayerKernel kernel_of(Form form, Out out) {
  if (form == Form::groups) return kernel_of<kCentred, Form::groups>(out);
  if (form == Form::f32) return kernel_of<kCentred, Form::f32>(out);
  return form == Form::fp16 ? kernel_of<kCentred, Form::fp16>(out)
                            : kernel_of<kCentred, Form::bf16>(out);
}

}  // namespace

LayerLaunch norm_rows_launch(const LayerProblem& p) {
  const LayerArgs& a = p.args;
  const bool is_any = p.kernel == RowKernel::norm_rows_any;
  const bool centred = a.layer == RowLayer::layer_norm;
  const int64_t threads = is_any ? column_threads(a.cols) : ceil_div(a.cols / kChunk, 32) * 32;
  const bool few = centred || (!is_any && p.form == Form::f32);
  const int64_t resident = (few ? 512 : 1024) / threads;
  LayerLaunch made{norm_rows_any, static_cast<unsigned>(wave_blocks(a.rows, resident, a.n_sm)),
                   static_cast<unsigned>(threads)};
  if (is_any) return made;
  made.kernel = centred ? kernel_of<true>(p.form, p.out) : kernel_of<false>(p.form, p.out);
  made.is_early = p.out == Out::unquantized && a.rows <= kMaxEarlyRows;
  return made;
}

}  // namespace octet::cuda
