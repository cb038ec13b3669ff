// Comparisons of floats, and choices between elements of 2 or 4 bytes, eight at a time.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/move.cuh"
#include "math/elementwise.h"

namespace octet::cuda {
namespace {

struct MaskTask {
  const void *a, *b, *c;  // a: of a choice the condition
  void* y;                // may be an operand
  ElementParams p;
};

__device__ __forceinline__ bool holds(ElementOp op, float a, float b) {
  switch (op) {
#define MASK_unary(op)
#define MASK_binary(op)
#define MASK_scaled(op)
#define MASK_compare(op) \
  case ElementOp::op:    \
    return op##_of(a, b) != 0;
#define ELEMENT(op, arity, ...) MASK_##arity(op)
#include "math/elementwise.def"
    default:
      return false;
  }
}

// Eight flags, a byte each.
struct alignas(8) Flags {
  uint8_t at[kEight];
};

__global__ void __launch_bounds__(kThreads) compare_eights(const __grid_constant__ MaskTask t) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  if (i + kEight <= t.p.n) {
    float a[kEight], b[kEight];
    widen8(load_raw8(t.a, i, t.p.a), t.p.a, a);
    widen8(load_raw8(t.b, i, t.p.b), t.p.b, b);
    Flags flags;
#pragma unroll
    for (int k = 0; k < kEight; ++k) flags.at[k] = holds(t.p.op, a[k], b[k]) ? 1 : 0;
    *reinterpret_cast<Flags*>(static_cast<uint8_t*>(t.y) + i) = flags;
    return;
  }
  for (int64_t k = i; k < t.p.n; ++k) {
    const bool is_set = holds(t.p.op, load_float(t.a, k, t.p.a), load_float(t.b, k, t.p.b));
    static_cast<uint8_t*>(t.y)[k] = is_set ? 1 : 0;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) select_eights(const __grid_constant__ MaskTask t) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kEight;
  const auto* const condition = static_cast<const uint8_t*>(t.a);
  const auto *const yes = static_cast<const T*>(t.b), *const no = static_cast<const T*>(t.c);
  auto* const y = static_cast<T*>(t.y);
  if (i + kEight <= t.p.n) {
    const Flags flags = *reinterpret_cast<const Flags*>(condition + i);
    Pack<T, kEight> a = load_pack<kEight>(yes + i);
    const Pack<T, kEight> b = load_pack<kEight>(no + i);
#pragma unroll
    for (int k = 0; k < kEight; ++k) a.at[k] = flags.at[k] != 0 ? a.at[k] : b.at[k];
    store_pack(y + i, a);
    return;
  }
  for (int64_t k = i; k < t.p.n; ++k) y[k] = condition[k] != 0 ? yes[k] : no[k];
}

}  // namespace

bool run_masks(const ElementParams& p, const Launch& args) {
  const MaskTask t{.a = args.operands[0],
                   .b = args.operands[1],
                   .c = p.n_operands > 2 ? args.operands[2] : nullptr,
                   .y = args.results[0],
                   .p = p};
  for (const void* address : {t.a, t.b, t.c, static_cast<const void*>(t.y)})
    if (!is_aligned(address, 32)) return false;  // of no plan
  const unsigned grid = grid_of(ceil_div(ceil_div(p.n, kEight), kThreads));
  if (p.kernel == ElementKernel::select) {
    if (p.y == Dtype::f32) {
      select_eights<uint32_t><<<grid, kThreads, 0, args.stream>>>(t);
    } else {
      select_eights<uint16_t><<<grid, kThreads, 0, args.stream>>>(t);
    }
  } else {
    compare_eights<<<grid, kThreads, 0, args.stream>>>(t);
  }
  check_launch("masks");
  return true;
}

}  // namespace octet::cuda
