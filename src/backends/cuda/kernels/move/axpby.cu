// The sum of two tensors, each times a number: params/move.h.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kPacks = 2;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;

struct AxpbyTask {
  const void *a, *b;
  void* y;  // may be an operand
  const float *factor_a, *factor_b;
  AxpbyParams p;
  bool aligned = false;
};

__global__ void __launch_bounds__(kThreads, 4) axpby(const __grid_constant__ AxpbyTask t) {
  const AxpbyParams& p = t.p;
  const float factor_a = *t.factor_a, factor_b = *t.factor_b;
  const int64_t base = int64_t{blockIdx.x} * kChunk;
  if (t.aligned && base + kChunk <= p.n) {
    Raw8 a[kPacks], b[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      a[k] = load_raw8(t.a, i, p.a);
      b[k] = load_raw8(t.b, i, p.b);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      float v[8], w[8];
      widen8(a[k], p.a, v);
      widen8(b[k], p.b, w);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = fmaf(factor_b, w[j], factor_a * v[j]);
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      store_raw8(t.y, i, p.y, narrow8(v, p.y));
    }
    return;
  }
  for (int64_t i = base + threadIdx.x; i < min(p.n, base + kChunk); i += kThreads)
    store_float(t.y, i, p.y,
                fmaf(factor_b, load_float(t.b, i, p.b), factor_a * load_float(t.a, i, p.a)));
}

}  // namespace

void run_axpby(const AxpbyParams& p, const Launch& args) {
  using S = octet::Axpby;
  if (p.n == 0) return;
  AxpbyTask t{.a = args.operands[S::a],
              .b = args.operands[S::b],
              .y = args.results[S::y],
              .factor_a = args.in<float>(S::factor_a),
              .factor_b = args.in<float>(S::factor_b),
              .p = p};
  t.aligned = is_aligned(t.a, 16) && is_aligned(t.b, 16) && is_aligned(t.y, 16);
  axpby<<<grid_of(ceil_div(p.n, kChunk)), kThreads, 0, args.stream>>>(t);
  check_launch("axpby");
}

}  // namespace octet::cuda
