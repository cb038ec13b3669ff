// Element by element: params/move.h.
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "math/elementwise.h"

namespace octet::cuda {
namespace {

constexpr int kPacks = 2;  // eights of a thread
constexpr int kChunk = kThreads * kEight * kPacks;

struct ElementTask {
  const void* a;
  const void* b;  // nullptr: one operand
  const void* c;
  void* y;  // may be an operand
  ElementParams p;
  bool aligned = false;
};

template <typename F>
__device__ __forceinline__ void each(float (&v)[8], const float (&w)[8], F f) {
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = f(v[j], w[j]);
}

// v = op(v, w): the choice once for eight elements.
__device__ __forceinline__ void apply(ElementOp chosen, float (&v)[8], const float (&w)[8]) {
  switch (chosen) {
#define CASE_f64(op, arity)
#define CASE_f32(op, arity) CASE_##arity(op)
#define CASE_unary(op) \
  case ElementOp::op:  \
    return each(v, w, [](float a, float b) { return op##_of(a, b); });
#define CASE_binary CASE_unary
#define CASE_scaled(op) case ElementOp::op:  // as the next
#define ELEMENT(op, arity, computes_in, ...) CASE_##computes_in(op, arity)
#include "math/elementwise.def"
#undef CASE_f64
#undef CASE_f32
    default:
      return;
  }
}

template <Dtype X>
__global__ void __launch_bounds__(kThreads, 4)
    wide_elements(const __grid_constant__ ElementTask t) {
  wait_for_previous();
  start_next();
  const ElementParams& p = t.p;
  const Dtype da = known(X, p.a), db = known(X, p.b), dy = known(X, p.y);
  const int64_t base = int64_t{blockIdx.x} * kChunk;
  float v[8], w[8] = {};
  if (p.op == ElementOp::rescale) {
    const float factor = *static_cast<const float*>(t.c);
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] = factor;
  }
  if (t.aligned && base + kChunk <= p.n) {
    Raw8 a[kPacks], b[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      a[k] = load_raw8(t.a, i, da);
      b[k] = t.b == nullptr ? Raw8{} : load_raw8(t.b, i, db);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      widen8(a[k], da, v);
      if (t.b != nullptr) widen8(b[k], db, w);
      apply(p.op, v, w);
      const int64_t i = base + (k * kThreads + threadIdx.x) * kEight;
      store_raw8(t.y, i, dy, narrow8(v, dy));
    }
    return;
  }
  for (int64_t i = base + threadIdx.x; i < min(p.n, base + kChunk); i += kThreads) {
    v[0] = load_float(t.a, i, da);
    if (t.b != nullptr) w[0] = load_float(t.b, i, db);
    apply(p.op, v, w);
    store_float(t.y, i, dy, v[0]);
  }
}

// Every number of every type that the rest takes is a double.
__device__ double load_any(const void* x, int64_t i, Dtype dtype) {
  if (dtype == Dtype::i32) return static_cast<const int32_t*>(x)[i];
  if (dtype == Dtype::boolean) return static_cast<const uint8_t*>(x)[i] != 0;
  return load_float(x, i, dtype);
}

__device__ void store_any(void* y, int64_t i, Dtype dtype, double v) {
  if (dtype == Dtype::i32) {
    static_cast<int32_t*>(y)[i] = static_cast<int32_t>(v);
  } else if (dtype == Dtype::boolean) {
    static_cast<uint8_t*>(y)[i] = v != 0;
  } else if (dtype == Dtype::f32) {
    static_cast<float*>(y)[i] = static_cast<float>(v);
  } else {
    static_cast<uint16_t*>(y)[i] = dtype == Dtype::bf16 ? __bfloat16_as_ushort(__double2bfloat16(v))
                                                        : __half_as_ushort(__double2half(v));
  }
}

__device__ double any_value(const ElementTask& t, int64_t i) {
  const double a = load_any(t.a, i, t.p.a);
  switch (t.p.op) {
#define SECOND_unary 0.0
#define SECOND_compare load_any(t.b, i, t.p.b)
#define CASE_f32(op, b)
#define CASE_f64(op, b) \
  case ElementOp::op:   \
    return op##_of(a, b);
#define ELEMENT(op, arity, computes_in, ...) CASE_##computes_in(op, SECOND_##arity)
#include "math/elementwise.def"
    case ElementOp::select:
      return a != 0 ? load_any(t.b, i, t.p.b) : load_any(t.c, i, t.p.c);
    default:
      return a;
  }
}

__global__ void __launch_bounds__(kThreads) any_elements(const __grid_constant__ ElementTask t) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < t.p.n) store_any(t.y, i, t.p.y, any_value(t, i));
}

void run_elements(const ElementParams& p, const Launch& args) {
  if (p.n == 0) return;
  const bool is_mask = p.kernel == ElementKernel::select || p.kernel == ElementKernel::compare;
  if (is_mask && run_masks(p, args)) return;
  ElementTask t{.a = args.operands[0],
                .b = p.n_operands > 1 ? args.operands[1] : nullptr,
                .c = p.n_operands > 2 ? args.operands[2] : nullptr,
                .y = args.results[0],
                .p = p};
  if (p.op == ElementOp::rescale) t.c = t.b, t.b = nullptr;
  t.aligned = is_aligned(t.a, 16) && is_aligned(t.b, 16) && is_aligned(t.y, 16);
  if (p.kernel == ElementKernel::wide) {
    visit_common(p.a, p.a == p.y && (t.b == nullptr || p.b == p.a), [&]<Dtype X>() {
      const unsigned grid = grid_of(ceil_div(p.n, kChunk));
      if (grid <= kMaxEarlyRows)
        return launch_early(wide_elements<X>, {grid, kThreads}, args.stream, t);
      wide_elements<X><<<grid, kThreads, 0, args.stream>>>(t);
    });
  } else {
    any_elements<<<grid_of(ceil_div(p.n, kThreads)), kThreads, 0, args.stream>>>(t);
  }
  check_launch("elementwise");
}

constexpr KernelEntry kRows[] = {
    {KernelId::elementwise, stateless<ElementParams, run_elements>},
    {KernelId::axpby, stateless<AxpbyParams, run_axpby>},
    {KernelId::cast, stateless<ElementParams, run_elements>},
    {KernelId::fill, prepare_fill},
    {KernelId::iota, prepare_iota},
    {KernelId::transpose, prepare_copies},
    {KernelId::broadcast, prepare_copies},
    {KernelId::slice, prepare_copies},
    {KernelId::pad, prepare_copies},
    {KernelId::concatenate, prepare_copies},
    {KernelId::cache_write, prepare_cache_write},
    {KernelId::unfold, stateless<UnfoldParams, run_unfold>},
    {KernelId::fold, stateless<UnfoldParams, run_fold>},
    {KernelId::depthwise, stateless<DepthwiseParams, run_depthwise>},
    {KernelId::depthwise_weight, stateless<DepthwiseParams, run_depthwise_weight>},
};

}  // namespace

void launch_cast(const CastCall& call, cudaStream_t stream) {
  void* const from[] = {const_cast<void*>(call.from)};
  void* const to[] = {call.to};
  run_elements({.n = call.n, .a = call.x, .b = call.x, .c = call.x, .y = call.y},
               {.operands = from, .results = to, .stream = stream});
}

std::span<const KernelEntry> move_kernels() {
  return kRows;
}

}  // namespace octet::cuda
