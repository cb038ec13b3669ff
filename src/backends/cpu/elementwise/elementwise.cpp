#include "backends/cpu/elementwise/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/elementwise.cpp"
#include <hwy/foreach_target.h>
#include "backends/cpu/common/simd_targets.h"

#include "backends/cpu/common/simd_math-inl.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "base/error.h"

#ifndef OCTET_CPU_ELEMENTWISE_ARGS
#define OCTET_CPU_ELEMENTWISE_ARGS
namespace octet::cpu {}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kInvSqrt2Pi = 0.39894228040143268f;  // 1 / sqrt(2 pi)
constexpr float kGeluScale = 0.79788456080286536f;   // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

HWY_INLINE VF gelu_tanh_argument(VF x) {
  const VF cubic = hn::Mul(hn::Mul(x, x), hn::Mul(x, set(kGeluCubic)));
  return hn::Mul(set(kGeluScale), hn::Add(x, cubic));
}

template <UnaryOp op>
HWY_INLINE VF apply(VF x) {
  const VF one = set(1.0f), half = set(0.5f);
  if constexpr (op == UnaryOp::neg) return hn::Neg(x);
  if constexpr (op == UnaryOp::abs) return hn::Abs(x);
  if constexpr (op == UnaryOp::square) return hn::Mul(x, x);
  if constexpr (op == UnaryOp::sqrt) return hn::Sqrt(x);
  if constexpr (op == UnaryOp::rsqrt) return hn::Div(one, hn::Sqrt(x));
  if constexpr (op == UnaryOp::reciprocal) return hn::Div(one, x);
  if constexpr (op == UnaryOp::exp) return exp_f32(x);
  if constexpr (op == UnaryOp::tanh) return tanh_f32(x);
  if constexpr (op == UnaryOp::erf) return erf_f32(x);
  if constexpr (op == UnaryOp::sigmoid) return sigmoid_f32(x);
  if constexpr (op == UnaryOp::silu) return silu_f32(x);
  const VF half_x = hn::Mul(x, half);
  if constexpr (op == UnaryOp::gelu_erf) {
    return hn::Mul(half_x, hn::Add(one, erf_f32(hn::Mul(x, set(kSqrtHalf)))));
  }
  return hn::Mul(half_x, hn::Add(one, tanh_f32(gelu_tanh_argument(x))));
}

template <UnaryOp op>
HWY_INLINE VF slope(VF x) {
  const VF one = set(1.0f), half = set(0.5f);
  if constexpr (op == UnaryOp::exp) return exp_f32(x);
  if constexpr (op == UnaryOp::tanh) {
    const VF t = tanh_f32(x);
    return hn::NegMulAdd(t, t, one);
  }
  if constexpr (op == UnaryOp::sigmoid) {
    const VF s = sigmoid_f32(x);
    return hn::Mul(s, hn::Sub(one, s));
  }
  if constexpr (op == UnaryOp::silu) return silu_with_slope(x).slope;
  if constexpr (op == UnaryOp::gelu_erf) {
    const VF cdf = hn::Mul(half, hn::Add(one, erf_f32(hn::Mul(x, set(kSqrtHalf)))));
    const VF density = hn::Mul(set(kInvSqrt2Pi), exp_f32(hn::Mul(hn::Mul(x, x), set(-0.5f))));
    return hn::MulAdd(x, density, cdf);
  }
  const VF t = tanh_f32(gelu_tanh_argument(x));
  const VF inner = hn::MulAdd(hn::Mul(x, x), set(3 * kGeluCubic), one);
  const VF outer = hn::Mul(hn::Mul(hn::Mul(x, half), set(kGeluScale)), hn::NegMulAdd(t, t, one));
  return hn::MulAdd(outer, inner, hn::Mul(half, hn::Add(one, t)));
}

template <BinaryOp op>
HWY_INLINE VF apply(VF a, VF b) {
  if constexpr (op == BinaryOp::add) return hn::Add(a, b);
  if constexpr (op == BinaryOp::sub) return hn::Sub(a, b);
  if constexpr (op == BinaryOp::mul) return hn::Mul(a, b);
  if constexpr (op == BinaryOp::div) return hn::Div(a, b);
  // The machine's max and min drop a NaN in one operand: a + b brings it back.
  const VF picked = op == BinaryOp::max ? hn::Max(a, b) : hn::Min(a, b);
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), picked);
}

template <UnaryOp op>
void unary_range(In x, Out y, int64_t begin, int64_t end) {
  for_lanes(begin, end,
            [&](int64_t i, auto io) HWY_ATTR { store(io, apply<op>(load(io, x, i)), y, i); });
}
template <UnaryOp op>
void unary_backward_range(In x, In dy, Out dx, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    store(io, hn::Mul(load(io, dy, i), slope<op>(load(io, x, i))), dx, i);
  });
}
template <BinaryOp op>
void binary_range(In a, In b, Out y, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    store(io, apply<op>(load(io, a, i), load(io, b, i)), y, i);
  });
}

void Unary(UnaryOp op, In x, Out y, int64_t begin, int64_t end) {
  switch (op) {
    case UnaryOp::neg:
      return unary_range<UnaryOp::neg>(x, y, begin, end);
    case UnaryOp::abs:
      return unary_range<UnaryOp::abs>(x, y, begin, end);
    case UnaryOp::square:
      return unary_range<UnaryOp::square>(x, y, begin, end);
    case UnaryOp::sqrt:
      return unary_range<UnaryOp::sqrt>(x, y, begin, end);
    case UnaryOp::rsqrt:
      return unary_range<UnaryOp::rsqrt>(x, y, begin, end);
    case UnaryOp::reciprocal:
      return unary_range<UnaryOp::reciprocal>(x, y, begin, end);
    case UnaryOp::exp:
      return unary_range<UnaryOp::exp>(x, y, begin, end);
    case UnaryOp::tanh:
      return unary_range<UnaryOp::tanh>(x, y, begin, end);
    case UnaryOp::erf:
      return unary_range<UnaryOp::erf>(x, y, begin, end);
    case UnaryOp::sigmoid:
      return unary_range<UnaryOp::sigmoid>(x, y, begin, end);
    case UnaryOp::silu:
      return unary_range<UnaryOp::silu>(x, y, begin, end);
    case UnaryOp::gelu_erf:
      return unary_range<UnaryOp::gelu_erf>(x, y, begin, end);
    case UnaryOp::gelu_tanh:
      return unary_range<UnaryOp::gelu_tanh>(x, y, begin, end);
  }
}

void UnaryBackward(const UnaryBackwardArgs& a, int64_t begin, int64_t end) {
  switch (a.op) {
    case UnaryOp::exp:
      return unary_backward_range<UnaryOp::exp>(a.x, a.dy, a.dx, begin, end);
    case UnaryOp::tanh:
      return unary_backward_range<UnaryOp::tanh>(a.x, a.dy, a.dx, begin, end);
    case UnaryOp::sigmoid:
      return unary_backward_range<UnaryOp::sigmoid>(a.x, a.dy, a.dx, begin, end);
    case UnaryOp::silu:
      return unary_backward_range<UnaryOp::silu>(a.x, a.dy, a.dx, begin, end);
    case UnaryOp::gelu_erf:
      return unary_backward_range<UnaryOp::gelu_erf>(a.x, a.dy, a.dx, begin, end);
    default:
      return unary_backward_range<UnaryOp::gelu_tanh>(a.x, a.dy, a.dx, begin, end);
  }
}

void Binary(const BinaryArgs& x, int64_t begin, int64_t end) {
  switch (x.op) {
    case BinaryOp::add:
      return binary_range<BinaryOp::add>(x.a, x.b, x.y, begin, end);
    case BinaryOp::sub:
      return binary_range<BinaryOp::sub>(x.a, x.b, x.y, begin, end);
    case BinaryOp::mul:
      return binary_range<BinaryOp::mul>(x.a, x.b, x.y, begin, end);
    case BinaryOp::div:
      return binary_range<BinaryOp::div>(x.a, x.b, x.y, begin, end);
    case BinaryOp::max:
      return binary_range<BinaryOp::max>(x.a, x.b, x.y, begin, end);
    case BinaryOp::min:
      return binary_range<BinaryOp::min>(x.a, x.b, x.y, begin, end);
  }
}

void Cast(In x, Out y, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR { store(io, load(io, x, i), y, i); });
}

void Fill(Out y, float value, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR { store(io, set(value), y, i); });
}

void Sum(const ScaledSum& a, int64_t begin, int64_t end) {
  const VF alpha = set(a.alpha), beta = set(a.beta);
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    const VF x = hn::Mul(alpha, load(io, a.a, i));
    store(io, a.b ? hn::MulAdd(beta, load(io, a.b, i), x) : x, a.y, i);
  });
}

void GatedSilu(In gate, In up, Out y, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    const VF g = apply<UnaryOp::silu>(load(io, gate, i));
    store(io, hn::Mul(g, load(io, up, i)), y, i);
  });
}

void GatedSiluGrad(const GatedSiluBackward& a, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    const SiluLanes g = silu_with_slope(load(io, a.gate, i));
    const VF up = load(io, a.up, i), dy = load(io, a.dy, i);
    store(io, hn::Mul(hn::Mul(dy, up), g.slope), a.dgate, i);
    store(io, hn::Mul(dy, g.value), a.dup, i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Unary);
HWY_EXPORT(UnaryBackward);
HWY_EXPORT(Binary);
HWY_EXPORT(Cast);
HWY_EXPORT(Fill);
HWY_EXPORT(Sum);
HWY_EXPORT(GatedSilu);
HWY_EXPORT(GatedSiluGrad);

void cast(In x, Out y, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Cast);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(x, y, b, e); });
}

void fill(Out y, float value, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Fill);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(y, value, b, e); });
}

void binary(const BinaryArgs& args, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Binary);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(args, b, e); });
}

void scaled_sum(const ScaledSum& args, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Sum);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(args, b, e); });
}

void unary(UnaryOp op, In x, Out y, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Unary);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(op, x, y, b, e); });
}

void unary_backward(const UnaryBackwardArgs& args, int64_t n, ThreadPool& pool) {
  if (args.op < UnaryOp::exp || args.op == UnaryOp::erf) {
    throw Error(ErrorCode::invalid_argument, "[unary_backward] expected an activation, got op {}",
                static_cast<int>(args.op));
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(UnaryBackward);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) {
    kernel(args, b, e);
    if (args.amax != nullptr) args.amax->add(offset(args.dx, b), e - b);
  });
}

void gated_silu(In gate, In up, Out y, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedSilu);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) { kernel(gate, up, y, b, e); });
}

void gated_silu_backward(const GatedSiluBackward& args, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(GatedSiluGrad);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) {
    kernel(args, b, e);
    if (args.amax == nullptr) return;
    args.amax->add(offset(args.dgate, b), e - b);
    args.amax->add(offset(args.dup, b), e - b);
  });
}

void unary_span(UnaryOp op, In x, Out y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Unary)(op, x, y, 0, n);
}

void unary_backward_span(UnaryOp op, In x, In dy, Out dx, int64_t n) {
  HWY_DYNAMIC_DISPATCH(UnaryBackward)({op, x, dy, dx, nullptr}, 0, n);
}

void gated_silu_span(In gate, In up, Out y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(GatedSilu)(gate, up, y, 0, n);
}

void gated_silu_backward_span(const GatedSiluBackward& args, int64_t n) {
  HWY_DYNAMIC_DISPATCH(GatedSiluGrad)(args, 0, n);
}

}  // namespace octet::cpu
#endif
