// Gated activations and GELU, element by element: a block takes pieces of 4096 elements, the next
// on its way while one is worked on.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/group_scale.cuh"
#include "backends/cuda/kernels/common/layer.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = kThreads * kChunk;
constexpr int kBlocksPerSm = 4;

template <Form F>
__device__ __forceinline__ Place piece_place(int64_t piece, int64_t n) {
  constexpr int W = kWidth<F>;
  return {piece * kPiece + static_cast<int64_t>(threadIdx.x) * W, kThreads * W, n};
}

// Two eights of a place, each half of a group of 16 whose other half the neighbouring thread has:
// the bits of quantize_groups.cu. All lanes of a warp are here.
__device__ __forceinline__ void keep_groups(const Kept& kept, const Place& p,
                                            const float (&v)[kChunk]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float* const eight = v + 8 * j;
    float amax = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float magnitude = fabsf(eight[k]);
      if (magnitude < __int_as_float(0x7F800000)) amax = fmaxf(amax, magnitude);
    }
    amax = fmaxf(amax, __shfl_xor_sync(~0u, amax, 1));
    const int64_t at = p.at + j * p.step;
    if (at >= p.end) continue;
    const uint16_t scale = group_scale(amax, 1 / kKeptTarget);
    const float inv_scale = 1.0f / to_float<Dtype::bf16>(scale);
    if (at % kChunk == 0) kept.scales[at / kChunk] = scale;
    *reinterpret_cast<uint2*>(kept.codes + at) = make_uint2(
        pack_codes<Dtype::e4m3>(eight, inv_scale), pack_codes<Dtype::e4m3>(eight + 4, inv_scale));
  }
}

template <bool kGated, Form F, Out O, bool kKeeps = false>
__global__ void __launch_bounds__(kThreads, F == Form::f32 ? 2 : kBlocksPerSm)
    act_rows(const __grid_constant__ LayerArgs a) {
  constexpr int W = kWidth<F>;
  wait_for_previous();
  start_next();
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  const int64_t n = a.rows * a.cols, n_pieces = (n + kPiece - 1) / kPiece;
  // The second pass goes backwards: what the first read last is still near.
  const bool back = a.scale.pass == Pass::second;
  const auto place = [&](int64_t i) { return piece_place<F>(back ? n_pieces - 1 - i : i, n); };
  Largest largest;
  NanCodes nan;
  Raw<F> next_x = {}, next_up = {};
  const auto fetch = [&](int64_t i) {
    if (i >= n_pieces) return;
    next_x = load_matrix<F, W>(a.x, place(i));
    if constexpr (kGated) next_up = load_matrix<F, W>(a.up, place(i));
  };
  fetch(blockIdx.x);
  for (int64_t i = blockIdx.x; i < n_pieces; i += gridDim.x) {
    const Raw<F> raw_x = next_x, raw_up = next_up;
    fetch(i + gridDim.x);
    float v[kChunk];
    unpack<F>(raw_x, v);
    if constexpr (kKeeps) keep_groups(a.kept_x, place(i), v);
    if constexpr (kGated) {
      float up[kChunk];
      unpack<F>(raw_up, up);
      if constexpr (kKeeps) keep_groups(a.kept_up, place(i), up);
#pragma unroll
      for (int k = 0; k < kChunk; ++k) v[k] = gated_silu(v[k], up[k]);
    } else {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) v[k] = unary_activation(a.layer, v[k]);
    }
    if (e.amax) largest.add(v);  // 0 behind the end: both are 0 at 0
    if constexpr (O == Out::unquantized) {
      store_float<W, kShort<F>>(a.y, place(i), v);
    } else if constexpr (F == Form::groups) {
      const Place p = place(i);
      const uint4 codes = pack_piece<kCode<O>>(v, e.inv_scale);
      if (a.scale.bounded) nan.add(codes);
      if (e.codes && p.at < p.end) *reinterpret_cast<uint4*>(a.codes + p.at) = codes;
    } else if (e.codes) {
      e.apply_limit(v);
      store_codes<kCode<O>, W>(a.codes, place(i), v, e.inv_scale);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
  if (nan.any()) *a.scale.flag = 1;
}

__global__ void __launch_bounds__(kThreads) act_rows_any(const __grid_constant__ LayerArgs a) {
  const Encoding e = begin_pass(a.scale);
  if (a.scale.pass == Pass::second && !e.codes) return;
  const int64_t n = a.rows * a.cols, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  Largest largest;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const float v = layer_value(a, i / a.cols, i % a.cols);
    if (e.amax) largest.add(v);
    emit_any(a, i, v, e);
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

template <bool kGated, Form F>
LayerKernel kernel_of(const LayerProblem& p) {
  if constexpr (is_short(F)) {
    if (p.out == Out::hif8) return act_rows<kGated, F, Out::hif8>;
  }
  if constexpr (!kGated || F != Form::groups) {
    if (F == Form::bf16 && p.out == Out::e4m3 && p.keeps)
      return act_rows<kGated, Form::bf16, Out::e4m3, true>;
    if (p.out == Out::e4m3) return act_rows<kGated, F, Out::e4m3>;
  }
  return act_rows<kGated, F, Out::unquantized>;
}
template <bool kGated>
LayerKernel kernel_of(const LayerProblem& p) {
  if (p.form == Form::groups) return kernel_of<kGated, Form::groups>(p);
  if (p.form == Form::f32) return kernel_of<kGated, Form::f32>(p);
  return p.form == Form::fp16 ? kernel_of<kGated, Form::fp16>(p) : kernel_of<kGated, Form::bf16>(p);
}

}  // namespace

LayerLaunch act_rows_launch(const LayerProblem& p) {
  const LayerArgs& a = p.args;
  const bool is_any = p.kernel == RowKernel::act_rows_any;
  const int64_t n_pieces = ceil_div(a.rows * a.cols, is_any ? kThreads : kPiece);
  LayerLaunch made{act_rows_any, static_cast<unsigned>(wave_blocks(n_pieces, kBlocksPerSm, a.n_sm)),
                   kThreads};
  if (is_any) return made;
  made.kernel = a.layer == RowLayer::gated_silu ? kernel_of<true>(p) : kernel_of<false>(p);
  made.is_early = p.out == Out::unquantized && a.rows <= kMaxEarlyRows;
  return made;
}

}  // namespace octet::cuda
