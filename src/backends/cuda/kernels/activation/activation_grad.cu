// Gradients of gated activations and GELU, element by element.
#include "backends/cuda/kernels/common/layer.cuh"
#include "backends/cuda/kernels/common/row_amax.cuh"
#include "backends/cuda/kernels/common/row_launch.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = kThreads * kChunk;
constexpr int kBlocksPerSm = 3;

struct GradArgs {
  Matrix dy, x, up;  // x: also the gate
  Unquantized first, second;
  int64_t rows = 0, cols = 0;
  int n_sm = 1;
  RowLayer layer = RowLayer::gated_silu;
  AmaxArgs amax;
};

template <bool kGated, Form F>
__global__ void __launch_bounds__(kThreads, F == Form::f32 ? 2 : kBlocksPerSm)
    act_grad(const __grid_constant__ GradArgs a) {
  constexpr int W = kWidth<F>;
  constexpr Form P = kUnquantized<F>;
  const int64_t n = a.rows * a.cols, n_pieces = (n + kPiece - 1) / kPiece;
  const auto place = [&](int64_t i) {
    return Place{i * kPiece + static_cast<int64_t>(threadIdx.x) * W, kThreads * W, n};
  };
  Raw<F> next_x = {}, next_up = {};
  Raw<P> next_dy = {};
  const auto fetch = [&](int64_t i) {
    if (i >= n_pieces) return;
    next_x = load_matrix<F, W>(a.x, place(i));
    if constexpr (kGated) next_up = load_matrix<F, W>(a.up, place(i));
    next_dy = load_matrix<P, W>(a.dy, place(i));
  };
  LargestWritten largest(a.amax);  // 0 behind the end: the gradients of zeros
  fetch(blockIdx.x);
  for (int64_t i = blockIdx.x; i < n_pieces; i += gridDim.x) {
    float x[kChunk], up[kChunk], dy[kChunk];
    unpack<F>(next_x, x);
    if constexpr (kGated) unpack<F>(next_up, up);
    unpack<P>(next_dy, dy);
    fetch(i + gridDim.x);
    if constexpr (kGated) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        const GatedGrad grad = gated_grad(dy[k], x[k], up[k]);
        x[k] = grad.gate;
        up[k] = grad.up;
      }
      store_float<W, kShort<F>>(a.second, place(i), up, largest);
    } else {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) x[k] = dy[k] * unary_slope(a.layer, x[k]);
    }
    store_float<W, kShort<F>>(a.first, place(i), x, largest);
  }
  if (largest.wanted) end_amax(a.amax, largest.all());
}

// Codes in groups, eight elements of a group at a time: neighbouring threads read and write
// neighbouring 16 bytes of bf16. Halves are counted in 32 bits.
struct HalfGroup {
  uint2 gate = {0, 0}, up = {0, 0};
  uint16_t gate_scale = 0, up_scale = 0;
  uint4 dy = {0, 0, 0, 0};

  __device__ __forceinline__ void load(const GradArgs& a, uint32_t i) {
    gate = __ldcs(static_cast<const uint2*>(a.x.data) + i);
    up = __ldcs(static_cast<const uint2*>(a.up.data) + i);
    gate_scale = static_cast<const uint16_t*>(a.x.scales)[i / 2 * a.x.scale_step];
    up_scale = static_cast<const uint16_t*>(a.up.scales)[i / 2 * a.up.scale_step];
    dy = __ldcs(static_cast<const uint4*>(a.dy.data) + i);
  }
  // Words of the gate's gradient, then of up's.
  __device__ __forceinline__ void gradients(uint32_t (&words)[kChunk / 2]) const {
    const float x_scale = to_float<Dtype::bf16>(gate_scale);
    const float y_scale = to_float<Dtype::bf16>(up_scale);
    const uint32_t dys[4] = {dy.x, dy.y, dy.z, dy.w};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x[4], y[4];
      unpack_e4m3(h == 0 ? gate.x : gate.y, x_scale, x);
      unpack_e4m3(h == 0 ? up.x : up.y, y_scale, y);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float d[2];
        unpack_bf16(dys[2 * h + k], d);
        const GatedGrad a = gated_grad(d[0], x[2 * k], y[2 * k]);
        const GatedGrad b = gated_grad(d[1], x[2 * k + 1], y[2 * k + 1]);
        words[2 * h + k] = pack_bf16(a.gate, b.gate);
        words[4 + 2 * h + k] = pack_bf16(a.up, b.up);
      }
    }
  }
};

constexpr int kHalvesAtOnce = 2;
constexpr int kHalfBlocks = 4;

// Largest of what the thread stored last, as it lies in memory.
__device__ __noinline__ Largest look_again(const GradArgs& a, uint32_t i) {
  const uint4 x = static_cast<const uint4*>(a.first.data)[i];
  const uint4 y = static_cast<const uint4*>(a.second.data)[i];
  const uint32_t words[kChunk / 2] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
  Largest largest;
#pragma unroll
  for (int k = 0; k < kChunk / 2; ++k) {
    float v[2];
    unpack_bf16(words[k], v);
    largest.add(v[0]);
    largest.add(v[1]);
  }
  return largest;
}

// A half's place is taken by the one that follows as soon as its gradients are made. Behind the end
// the last ones stay, and say nothing new of the amax.
__global__ void __launch_bounds__(kThreads, kHalfBlocks)
    gated_grad_codes(const __grid_constant__ GradArgs a) {
  const auto n = static_cast<uint32_t>(a.rows * a.cols / 8);
  const uint32_t stride = gridDim.x * (kHalvesAtOnce * kThreads);
  LargestWritten largest(a.amax);
  HalfGroup half[kHalvesAtOnce];
  const auto fetch = [&](uint32_t base, int k) {
    const uint32_t i = base + static_cast<uint32_t>(k * kThreads);
    if (i < n) half[k].load(a, i);
  };
  uint32_t base = blockIdx.x * (kHalvesAtOnce * kThreads) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kHalvesAtOnce; ++k) fetch(base, k);
  for (; base < n; base += stride) {
    PairRange range;
#pragma unroll
    for (int k = 0; k < kHalvesAtOnce; ++k) {
      uint32_t w[kChunk / 2];
      half[k].gradients(w);
      fetch(base + stride, k);
      if (largest.wanted) range.add(w);
      const uint32_t i = base + static_cast<uint32_t>(k * kThreads);
      if (i >= n) continue;
      static_cast<uint4*>(a.first.data)[i] = make_uint4(w[0], w[1], w[2], w[3]);
      static_cast<uint4*>(a.second.data)[i] = make_uint4(w[4], w[5], w[6], w[7]);
    }
    if (!largest.wanted || largest.join(range)) continue;
    for (uint32_t i = base; i < n && i < base + kHalvesAtOnce * kThreads; i += kThreads)
      largest.add(look_again(a, i));
  }
  if (largest.wanted) end_amax(a.amax, largest.all());
}

__global__ void __launch_bounds__(kThreads) act_grad_any(const __grid_constant__ GradArgs a) {
  const int64_t n = a.rows * a.cols, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  Largest largest;
  const auto store = [&](const Unquantized& y, int64_t i, float v) {
    store_any(y, i, v);
    largest.add(as_written(y.dtype, v));
  };
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const int64_t row = i / a.cols, col = i % a.cols;
    const float dy = load_any(a.dy, row, col), x = load_any(a.x, row, col);
    const bool gated = a.layer == RowLayer::gated_silu;
    const GatedGrad grad =
        activation_gradient(a.layer, dy, x, gated ? load_any(a.up, row, col) : 0.0f);
    store(a.first, i, grad.gate);
    if (gated) store(a.second, i, grad.up);
  }
  if (a.amax.partial != nullptr) end_amax(a.amax, largest);
}

using GradKernel = void (*)(GradArgs);
template <bool kGated>
GradKernel kernel_of(Form form) {
  if (form == Form::groups) return act_grad<kGated, Form::groups>;
  if (form == Form::f32) return act_grad<kGated, Form::f32>;
  return form == Form::fp16 ? act_grad<kGated, Form::fp16> : act_grad<kGated, Form::bf16>;
}

class ActGrad : public Prepared {
 public:
  ActGrad(const ActGradParams& params, int n_sm) : p_(params) {
    const int64_t n = p_.rows * p_.cols;
    int64_t piece = kThreads, per_sm = kBlocksPerSm;
    if (p_.kernel == RowKernel::gated_grad_codes) {
      kernel_ = gated_grad_codes;
      piece = 8 * kHalvesAtOnce * kThreads;
      per_sm = kHalfBlocks;
    } else if (p_.kernel == RowKernel::act_grad) {
      const bool gated = p_.layer == RowLayer::gated_silu;
      kernel_ = gated ? kernel_of<true>(p_.form) : kernel_of<false>(p_.form);
      piece = kPiece;
    }
    grid_ = static_cast<unsigned>(wave_blocks(ceil_div(n, piece), per_sm, n_sm));
  }

  void launch(const Launch& launch) override {
    GradArgs a;
    a.amax = amax_of(p_.amax, launch);
    if (p_.rows * p_.cols == 0 && p_.amax.amax_at == kAbsent) return;
    a.dy = matrix_of(p_.dy, p_.cols, launch);
    a.x = matrix_of(p_.x, p_.cols, launch);
    a.up = matrix_of(p_.up, p_.cols, launch);
    a.first = result_of(p_.first, launch);
    a.second = result_of(p_.second, launch);
    a.rows = p_.rows;
    a.cols = p_.cols;
    a.n_sm = launch.n_sm;
    a.layer = p_.layer;
    const GradKernel kernel = kernel_;
    kernel<<<grid_, kThreads, 0, launch.stream>>>(a);
    check_launch("act_grad");
  }

 private:
  ActGradParams p_;
  GradKernel kernel_ = act_grad_any;
  unsigned grid_ = 1;
};

std::unique_ptr<Prepared> prepare_act_grad(const Request& request) {
  return std::make_unique<ActGrad>(request.get<ActGradParams>(), request.n_sm);
}

const KernelEntry kRows[] = {{KernelId::activation_grad, prepare_act_grad}};

}  // namespace

std::span<const KernelEntry> activation_grad_kernels() {
  return kRows;
}

}  // namespace octet::cuda
