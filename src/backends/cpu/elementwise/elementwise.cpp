#include "backends/cpu/elementwise/elementwise.h"

#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise/elementwise.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd_math-inl.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "base/error.h"

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

template <RowLayer kLayer>
HWY_INLINE VF unary_activation(VF x) {
  const VF one = set(1.0f), half_x = hn::Mul(x, set(0.5f));
  if constexpr (kLayer == RowLayer::gelu_erf) {
    return hn::Mul(half_x, hn::Add(one, erf_f32(hn::Mul(x, set(kSqrtHalf)))));
  }
  return hn::Mul(half_x, hn::Add(one, tanh_f32(gelu_tanh_argument(x))));
}

template <RowLayer kLayer>
HWY_INLINE VF unary_slope(VF x) {
  const VF one = set(1.0f), half = set(0.5f);
  if constexpr (kLayer == RowLayer::gelu_erf) {
    const VF cdf = hn::Mul(half, hn::Add(one, erf_f32(hn::Mul(x, set(kSqrtHalf)))));
    const VF density = hn::Mul(set(kInvSqrt2Pi), exp_f32(hn::Mul(hn::Mul(x, x), set(-0.5f))));
    return hn::MulAdd(x, density, cdf);
  }
  const VF t = tanh_f32(gelu_tanh_argument(x));
  const VF inner = hn::MulAdd(hn::Mul(x, x), set(3 * kGeluCubic), one);
  const VF outer = hn::Mul(hn::Mul(hn::Mul(x, half), set(kGeluScale)), hn::NegMulAdd(t, t, one));
  return hn::MulAdd(outer, inner, hn::Mul(half, hn::Add(one, t)));
}

// The ops of elementwise.def that vectors compute, each with one rounding, as the reference.
template <OpCode op>
using Op = std::integral_constant<OpCode, op>;
HWY_INLINE VF lanes(Op<OpCode::neg>, VF x) {
  return hn::Neg(x);
}
HWY_INLINE VF lanes(Op<OpCode::abs>, VF x) {
  return hn::Abs(x);
}
HWY_INLINE VF lanes(Op<OpCode::square>, VF x) {
  return hn::Mul(x, x);
}
HWY_INLINE VF lanes(Op<OpCode::sqrt>, VF x) {
  return hn::Sqrt(x);
}
HWY_INLINE VF lanes(Op<OpCode::add>, VF a, VF b) {
  return hn::Add(a, b);
}
HWY_INLINE VF lanes(Op<OpCode::sub>, VF a, VF b) {
  return hn::Sub(a, b);
}
HWY_INLINE VF lanes(Op<OpCode::mul>, VF a, VF b) {
  return hn::Mul(a, b);
}
HWY_INLINE VF lanes(Op<OpCode::div>, VF a, VF b) {
  return hn::Div(a, b);
}
// The machine's max and min drop a NaN in one operand: a + b brings it back.
HWY_INLINE VF or_nan(VF picked, VF a, VF b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), picked);
}
HWY_INLINE VF lanes(Op<OpCode::maximum>, VF a, VF b) {
  return or_nan(hn::Max(a, b), a, b);
}
HWY_INLINE VF lanes(Op<OpCode::minimum>, VF a, VF b) {
  return or_nan(hn::Min(a, b), a, b);
}

// Comparisons, which give bools.
HWY_INLINE auto holds(Op<OpCode::less>, VF a, VF b) {
  return hn::Lt(a, b);
}
HWY_INLINE auto holds(Op<OpCode::less_equal>, VF a, VF b) {
  return hn::Le(a, b);
}
HWY_INLINE auto holds(Op<OpCode::greater>, VF a, VF b) {
  return hn::Gt(a, b);
}
HWY_INLINE auto holds(Op<OpCode::greater_equal>, VF a, VF b) {
  return hn::Ge(a, b);
}
HWY_INLINE auto holds(Op<OpCode::equal>, VF a, VF b) {
  return hn::Eq(a, b);
}
HWY_INLINE auto holds(Op<OpCode::not_equal>, VF a, VF b) {
  return hn::Not(hn::Eq(a, b));  // also of a NaN
}
using U8 = hn::Rebind<uint8_t, F32>;
HWY_INLINE hn::Vec<U8> flags_of(hn::Mask<F32> mask) {
  const VU ones = hn::IfThenElseZero(hn::RebindMask(U32(), mask), hn::Set(U32(), 1u));
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(U8(), static_cast<uint8_t>(hn::GetLane(ones)));
#else
  return hn::DemoteTo(U8(), hn::BitCast(I32(), ones));
#endif
}

HWY_INLINE size_t lanes_of(Full) {
  return hn::Lanes(F32());
}
HWY_INLINE size_t lanes_of(Part io) {
  return io.n;
}

using ElementRange = void (*)(const ElementArgs& args, int64_t begin, int64_t end);
template <typename F>
void element_range(const ElementArgs& x, int64_t begin, int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    if constexpr (requires(VF v) { holds(F(), v, v); }) {
      HWY_ALIGN uint8_t flags[HWY_MAX_BYTES / sizeof(float)];
      hn::StoreU(flags_of(holds(F(), load(io, x.a, i), load(io, x.b, i))), U8(), flags);
      std::memcpy(static_cast<uint8_t*>(x.y.data) + i, flags, lanes_of(io));
    } else if constexpr (requires(VF v) { lanes(F(), v); }) {
      store(io, lanes(F(), load(io, x.a, i)), x.y, i);
    } else {
      store(io, lanes(F(), load(io, x.a, i), load(io, x.b, i)), x.y, i);
    }
  });
}
template <typename F>
ElementRange range_of() {
  constexpr bool kHas = requires(VF v) {
    lanes(F(), v);
  }
  || requires(VF v) {
    lanes(F(), v, v);
  }
  || requires(VF v) {
    holds(F(), v, v);
  };
  if constexpr (kHas) return element_range<F>;
  return nullptr;
}
// nullptr where no vectors compute it.
ElementRange Elements(OpCode op) {
  switch (op) {
#define ELEMENT(op, ...) \
  case OpCode::op:       \
    return range_of<Op<OpCode::op>>();
#include "math/elementwise.def"
    default:
      return nullptr;
  }
}

// Selection of elements as they lie.
template <typename T>
void select_range(const Selection& s, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto *yes = static_cast<const T*>(s.yes), *no = static_cast<const T*>(s.no);
  auto* const y = static_cast<T*>(s.y);
  const auto n = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + n <= end; i += n) {
    const auto flags = hn::LoadU(d8, s.condition + i);
    hn::Mask<decltype(d)> mask;
    if constexpr (sizeof(T) == 1) {
      mask = hn::Ne(flags, hn::Zero(d));
    } else {
      mask = hn::Ne(hn::PromoteTo(d, flags), hn::Zero(d));
    }
    hn::StoreU(hn::IfThenElse(mask, hn::LoadU(d, yes + i), hn::LoadU(d, no + i)), d, y + i);
  }
  for (; i < end; ++i) y[i] = s.condition[i] != 0 ? yes[i] : no[i];
}
void Select(const Selection& s, int64_t begin, int64_t end) {
  if (s.bytes == 1) return select_range<uint8_t>(s, begin, end);
  s.bytes == 2 ? select_range<uint16_t>(s, begin, end) : select_range<uint32_t>(s, begin, end);
}

// Operands by value: through a reference each vector would load their types again.
template <RowLayer kLayer>
HWY_NOINLINE void activation_range(const ActivationArgs& a, int64_t begin, int64_t end) {
  const In x = a.x, up = a.up;
  const Out y = a.y;
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    if constexpr (kLayer == RowLayer::gated_silu) {
      const VF g = silu_f32(load(io, x, i));
      store(io, hn::Mul(g, load(io, up, i)), y, i);
    } else {
      store(io, unary_activation<kLayer>(load(io, x, i)), y, i);
    }
  });
}
template <RowLayer kLayer>
HWY_NOINLINE void activation_backward_range(const ActivationBackward& a, int64_t begin,
                                            int64_t end) {
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    const VF x = load(io, a.x, i);
    if constexpr (kLayer == RowLayer::gated_silu) {
      const SiluLanes g = silu_with_slope(x);
      const VF up = load(io, a.up, i), dy = load(io, a.dy, i);
      store(io, hn::Mul(hn::Mul(dy, up), g.slope), a.dx, i);
      store(io, hn::Mul(dy, g.value), a.dup, i);
    } else {
      store(io, hn::Mul(load(io, a.dy, i), unary_slope<kLayer>(x)), a.dx, i);
    }
  });
}
// f.template operator()<kLayer>() for the activation.
template <typename F>
void visit_activation(RowLayer layer, F&& f) {
  if (layer == RowLayer::gated_silu) return f.template operator()<RowLayer::gated_silu>();
  if (layer == RowLayer::gelu_erf) return f.template operator()<RowLayer::gelu_erf>();
  f.template operator()<RowLayer::gelu_tanh>();
}
void Activate(const ActivationArgs& a, int64_t begin, int64_t end) {
  visit_activation(a.layer, [&]<RowLayer kLayer>() { activation_range<kLayer>(a, begin, end); });
}
void ActivateBackward(const ActivationBackward& a, int64_t begin, int64_t end) {
  visit_activation(a.layer,
                   [&]<RowLayer kLayer>() { activation_backward_range<kLayer>(a, begin, end); });
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Elements);
HWY_EXPORT(Select);
HWY_EXPORT(Activate);
HWY_EXPORT(ActivateBackward);
HWY_EXPORT(Fill);
HWY_EXPORT(Sum);

namespace {

// kernel(args..., begin, end) of blocks.
template <typename Kernel, typename... Args>
void run_blocks(ThreadPool& pool, int64_t n, Kernel kernel, const Args&... args) {
  for_blocks(pool, n, kBlockElems,
             [&](int64_t begin, int64_t end, int) { kernel(args..., begin, end); });
}

}  // namespace

void cast(In x, Out y, int64_t n, ThreadPool& pool) {
  run_blocks(pool, n, [&](int64_t begin, int64_t end) {
    convert_span(offset(x, begin), end - begin, offset(y, begin));
  });
}

void fill(Out y, float value, int64_t n, ThreadPool& pool) {
  run_blocks(pool, n, HWY_DYNAMIC_DISPATCH(Fill), y, value);
}

bool has_lanes(OpCode op) {
  return HWY_DYNAMIC_DISPATCH(Elements)(op) != nullptr;
}

void elementwise(const ElementArgs& args, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(Elements)(args.op);
  CHECK(kernel != nullptr);
  run_blocks(pool, n, kernel, args);
}

void select(const Selection& args, int64_t n, ThreadPool& pool) {
  CHECK(args.bytes == 1 || args.bytes == 2 || args.bytes == 4);
  run_blocks(pool, n, HWY_DYNAMIC_DISPATCH(Select), args);
}

void scaled_sum(const ScaledSum& args, int64_t n, ThreadPool& pool) {
  run_blocks(pool, n, HWY_DYNAMIC_DISPATCH(Sum), args);
}

void activate(const ActivationArgs& args, int64_t n, ThreadPool& pool) {
  run_blocks(pool, n, HWY_DYNAMIC_DISPATCH(Activate), args);
}

void ActivationBackward::find_amax(int64_t begin, int64_t n) const {
  if (amax == nullptr) return;
  amax->add(offset(dx, begin), n);
  if (dup) amax->add(offset(dup, begin), n);
}

void activate_backward(const ActivationBackward& args, int64_t n, ThreadPool& pool) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(ActivateBackward);
  for_blocks(pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
    kernel(args, begin, end);
    args.find_amax(begin, end - begin);
  });
}

void activate_span(const ActivationArgs& args, int64_t n) {
  HWY_DYNAMIC_DISPATCH(Activate)(args, 0, n);
}

void activate_backward_span(const ActivationBackward& args, int64_t n) {
  HWY_DYNAMIC_DISPATCH(ActivateBackward)(args, 0, n);
}

}  // namespace octet::cpu
#endif
