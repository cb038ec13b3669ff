// RMSNorm and LayerNorm of rows: a block takes a row at a time and holds it in registers between
// its statistics and its result; the next row is on its way meanwhile.
#include "backends/cuda/kernels/rows_layer.cuh"

namespace octet::cuda {
namespace {

constexpr int kMaxThreads = kFastCols / kChunk;

// Of x's sixteen elements; the mean first, then the squares about it.
struct Statistics {
  float (*slots)[kMaxWarps];
  int n_calls = 0;

  __device__ float sum(float v) { return block_sum(v, slots[n_calls++ % 2]); }
};

__device__ __forceinline__ NormRow statistics_of(const float (&v)[kChunk], bool active,
                                                 const LayerArgs& a, Statistics& block) {
  const auto cols = static_cast<float>(a.cols);
  NormRow row{0, 1};
  if (a.layer == RowLayer::layer_norm) {
    float s = 0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) s += v[i];
    row.mean = block.sum(s) / cols;
  }
  float s0 = 0, s1 = 0;
#pragma unroll
  for (int i = 0; i < kChunk; i += 2) {
    const float d0 = v[i] - row.mean, d1 = v[i + 1] - row.mean;
    s0 = fmaf(d0, d0, s0);
    s1 = fmaf(d1, d1, s1);
  }
  row.rstd = 1.0f / sqrtf(block.sum(active ? s0 + s1 : 0.0f) / cols + a.eps);
  return row;
}

__device__ __forceinline__ void keep(const LayerArgs& a, int64_t row, const NormRow& made) {
  if (threadIdx.x != 0) return;
  if (a.mean != nullptr) a.mean[row] = made.mean;
  if (a.rstd != nullptr) a.rstd[row] = made.rstd;
}

__device__ __forceinline__ NormRow known_row(const LayerArgs& a, int64_t row) {
  return {a.layer == RowLayer::layer_norm ? a.mean[row] : 0.0f, a.rstd[row]};
}

template <Form F, Out O>
__global__ void __launch_bounds__(kMaxThreads) norm_rows(const __grid_constant__ LayerArgs a) {
  constexpr int W = kWidth<F>;
  __shared__ float slots[2][kMaxWarps];
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  const int n_chunks = static_cast<int>(a.cols / kChunk), t = threadIdx.x;
  const bool active = t < n_chunks;
  const int step = n_chunks * W;
  const auto place = [&](int64_t row) {
    return Place{row * a.cols + t * W, step, active ? INT64_MAX : 0};
  };
  const Place columns{t * W, step, active ? INT64_MAX : 0};
  const Affine<F> affine = load_affine<F>(a, columns);
  // The second pass goes backwards: what the first read last is still near.
  const bool back = a.scale.pass == Pass::second;
  const auto row_at = [&](int64_t i) { return back ? a.rows - 1 - i : i; };
  Statistics block{slots};
  Largest largest;
  Raw<F> next = {};
  if (blockIdx.x < a.rows) next = load_matrix<F, W>(a.x, place(row_at(blockIdx.x)));
  for (int64_t i = blockIdx.x; i < a.rows; i += gridDim.x) {
    const int64_t row = row_at(i);
    const Raw<F> raw = next;
    if (i + gridDim.x < a.rows) next = load_matrix<F, W>(a.x, place(row_at(i + gridDim.x)));
    float v[kChunk];
    unpack<F>(raw, v);
    NormRow made;
    if (a.known) {
      made = known_row(a, row);
    } else {
      made = statistics_of(v, active, a, block);
      keep(a, row, made);
    }
    normalize<F>(made, affine, v);
    if (e.amax && active) largest.add(v);
    if constexpr (O == Out::wide) {
      store_wide<W>(a.y, place(row), v);
    } else if (e.codes) {
      store_codes<kCode<O>, W>(a.codes, place(row), v, e.inv_scale);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

// Any types, any number of columns: a row is read once for each of its sums.
__device__ NormRow any_statistics(const LayerArgs& a, int64_t row, Statistics& block) {
  const auto cols = static_cast<float>(a.cols);
  NormRow made{0, 1};
  if (a.layer == RowLayer::layer_norm) {
    float s = 0;
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) s += load_any(a.x, row, c);
    made.mean = block.sum(s) / cols;
  }
  float s = 0;
  for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
    const float d = load_any(a.x, row, c) - made.mean;
    s = fmaf(d, d, s);
  }
  made.rstd = 1.0f / sqrtf(block.sum(s) / cols + a.eps);
  return made;
}

__global__ void __launch_bounds__(kMaxThreads) norm_rows_any(const __grid_constant__ LayerArgs a) {
  __shared__ float slots[2][kMaxWarps];
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  Statistics block{slots};
  Largest largest;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    NormRow made;
    if (a.known) {
      made = known_row(a, row);
    } else {
      made = any_statistics(a, row, block);
      keep(a, row, made);
    }
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
      float v = (load_any(a.x, row, c) - made.mean) * made.rstd;
      if (a.weight.data != nullptr) v *= load_any(a.weight.data, a.weight.dtype, c);
      if (a.bias.data != nullptr) v += load_any(a.bias.data, a.bias.dtype, c);
      if (e.amax) largest.add(v);
      emit_any(a, row * a.cols + c, v, e);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

template <Form F>
void launch_form(Out out, const LayerArgs& a, dim3 grid, cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(ceil_div(a.cols / kChunk, 32) * 32);
  if (out == Out::wide) {
    norm_rows<F, Out::wide><<<grid, threads, 0, stream>>>(a);
  } else {
    norm_rows<F, Out::e4m3><<<grid, threads, 0, stream>>>(a);
  }
}

}  // namespace

int norm_blocks(const LayerArgs& a) {
  return static_cast<int>(row_blocks(a.rows, kRowBlocks));
}

void launch_norm_rows(Form form, Out out, const LayerArgs& a, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(norm_blocks(a)));
  if (form == Form::any || out == Out::any) {
    norm_rows_any<<<grid, 256, 0, stream>>>(a);
  } else if (form == Form::groups) {
    launch_form<Form::groups>(out, a, grid, stream);
  } else if (form == Form::f32) {
    launch_form<Form::f32>(out, a, grid, stream);
  } else if (out == Out::hif8) {
    const auto threads = static_cast<unsigned>(ceil_div(a.cols / kChunk, 32) * 32);
    norm_rows<Form::bf16, Out::hif8><<<grid, threads, 0, stream>>>(a);
  } else {
    launch_form<Form::bf16>(out, a, grid, stream);
  }
  check_launch("norm_rows");
}

}  // namespace octet::cuda
