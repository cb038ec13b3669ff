// Norms and activations as kernels see them, shared by those that go along rows (norm.cu,
// activation.cu) and those that transpose (code_tile.cuh).
#pragma once

#include "backends/cuda/kernels/common/row_scale.cuh"
#include "math/row_layers.h"

namespace octet::cuda {

template <Out O>
inline constexpr Dtype kCode = O == Out::hif8 ? Dtype::hif8 : Dtype::e4m3;

// The bits of the largest magnitude that any block has seen, and the blocks that have ended; of a
// kernel's counters.
struct ActSeen {
  unsigned int largest, n_ended;
};

// Groups of an operand that are kept, null where none are.
struct Kept {
  uint8_t* codes = nullptr;
  uint16_t* scales = nullptr;
};

struct LayerArgs {
  Matrix x, up;  // x: also the gate
  Unquantized weight, bias, y;
  int64_t rows = 0, cols = 0;
  int n_sm = 1;
  RowLayer layer = RowLayer::rms_norm;
  bool known = false;  // mean and rstd are given, not made
  float eps = 0;
  float* mean = nullptr;
  float* rstd = nullptr;
  Dtype code = Dtype::e4m3;
  uint8_t* codes = nullptr;       // [rows, cols]
  uint8_t* transposed = nullptr;  // [cols, padded_rows]
  int64_t padded_rows = 0;
  Kept kept_x, kept_up;
  ScaleArgs scale;
  ActSeen* seen = nullptr;
};

using NormRow = RowStatistics<float>;

// One element of a norm's result, and of any layer's, operands of any type.
__device__ __forceinline__ float norm_value(const LayerArgs& a, float x, const NormRow& made,
                                            int64_t col) {
  float v = normalized(x, made);
  if (a.weight.data != nullptr) v = v * load_any(a.weight.data, a.weight.dtype, col);
  if (a.bias.data != nullptr) v = v + load_any(a.bias.data, a.bias.dtype, col);
  return v;
}
__device__ __forceinline__ float layer_value(const LayerArgs& a, int64_t row, int64_t col) {
  const float x = load_any(a.x, row, col);
  if (a.layer == RowLayer::gated_silu) return gated_silu(x, load_any(a.up, row, col));
  if (!is_norm(a.layer)) return unary_activation(a.layer, x);
  const float mean = a.layer == RowLayer::layer_norm ? a.mean[row] : 0.0f;
  return norm_value(a, x, {mean, a.rstd[row]}, col);
}
// And where it goes, by rows.
__device__ __forceinline__ void emit_any(const LayerArgs& a, int64_t at, float v,
                                         const Encoding& e) {
  if (a.y.data != nullptr) store_any(a.y, at, v);
  if (e.codes && a.codes != nullptr)
    a.codes[at] = encode_any(a.code, limited(v * e.inv_scale, e.limit));
}

// True if norm_rows and norm_grad take such rows where the types go together.
__host__ __device__ constexpr bool has_fast_cols(int64_t cols) {
  return cols % kChunk == 0 && cols <= kFastCols;
}
// f(column, its number) for a thread's columns, which are those of the kernels of one form where
// these take such rows, so that sums have the same bits whatever the other types.
template <typename F>
__device__ __forceinline__ void each_column(const Matrix& x, F&& f) {
  if (!has_fast_cols(x.cols)) {
    for (int64_t c = threadIdx.x; c < x.cols; c += blockDim.x) f(c, 0);
    return;
  }
  const bool is_short = x.group == 0 && (x.dtype == Dtype::bf16 || x.dtype == Dtype::fp16);
  const bool in_groups =
      x.group == kChunk && x.dtype == Dtype::e4m3 && x.scales_dtype == Dtype::bf16;
  const int width = in_groups ? 16 : is_short ? 8 : 4;
  const int n_chunks = static_cast<int>(x.cols / kChunk), t = static_cast<int>(threadIdx.x);
  if (t >= n_chunks) return;
  for (int k = 0; k < kChunk; ++k) f((k / width * n_chunks + t) * width + k % width, k);
}
// Threads of a block that calls it.
inline int64_t column_threads(int64_t cols) {
  const int64_t fitting = ceil_div(cols / kChunk, 32) * 32;
  return has_fast_cols(cols) && fitting > 256 ? fitting : 256;
}
// Operands that a norm applies along the columns, where they are there.
template <Form F>
struct Affine {
  Raw<kUnquantized<F>> weight, bias;
  bool has_weight, has_bias;
};
template <bool kCentred, Form F>
__device__ __forceinline__ void normalize(const NormRow& row, const Affine<F>& affine,
                                          float (&v)[kChunk]) {
  float p[kChunk];
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = normalized<kCentred>(v[i], row);
  if (affine.has_weight) {
    unpack<kUnquantized<F>>(affine.weight, p);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] *= p[i];
  }
  if (kCentred && affine.has_bias) {
    unpack<kUnquantized<F>>(affine.bias, p);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] += p[i];
  }
}

template <Form F, int W>
__device__ __forceinline__ Raw<F> load_matrix(const Matrix& m, const Place& p) {
  return load_raw<F, W>(m.data, m.scales, p, m.scale_step);
}
template <Form F>
__device__ __forceinline__ Raw<kUnquantized<F>> load_vector(const Unquantized& v, const Place& p) {
  if (v.data == nullptr) return {};
  return load_raw<kUnquantized<F>, kWidth<F>>(v.data, nullptr, p);
}
template <bool kCentred, Form F>
__device__ __forceinline__ Affine<F> load_affine(const LayerArgs& a, const Place& p) {
  Affine<F> affine = {load_vector<F>(a.weight, p), {}, a.weight.data != nullptr, false};
  if constexpr (kCentred) {
    affine.bias = load_vector<F>(a.bias, p);
    affine.has_bias = a.bias.data != nullptr;
  }
  return affine;
}

// Facts of a pass known when it is prepared: of `args` all but addresses.
struct LayerProblem {
  RowKernel kernel = RowKernel::norm_rows_any;
  Form form = Form::any;
  Out out = Out::any;
  LayerArgs args = {};
  bool keeps = false;  // groups of operands
};
// The kernel that makes it; of a first pass each block leaves a partial maximum.
using LayerKernel = void (*)(LayerArgs);
struct LayerLaunch {
  LayerKernel kernel = nullptr;
  unsigned grid = 0, threads = 0;
  bool is_early = false;  // (early_start.cuh)
};
// By RowKernel.
LayerLaunch norm_rows_launch(const LayerProblem& p);
LayerLaunch act_rows_launch(const LayerProblem& p);
LayerLaunch layer_tiles_launch(const LayerProblem& p);
// Launches of layers of codes (tile_codes.cu, activation_codes.cu, norm_codes.cu, norm_once.cu).
LayerLaunch code_tiles_launch(const LayerArgs& args);
LayerLaunch act_amax_launch(const LayerArgs& args);
LayerLaunch gated_rows_launch(const LayerArgs& args);
LayerLaunch norm_amax_launch(const LayerArgs& args);
LayerLaunch norm_codes_launch(const LayerArgs& args);
LayerLaunch norm_once_launch(const LayerArgs& args);
unsigned norm_warp_blocks(const LayerArgs& args);

}  // namespace octet::cuda
