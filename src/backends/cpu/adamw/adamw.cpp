#include "backends/cpu/adamw/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/adamw/adamw.cpp"
#include <hwy/foreach_target.h>
#include "backends/cpu/common/simd_targets.h"

#include "backends/cpu/common/simd-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

using I16 = hn::Rebind<int16_t, F32>;

HWY_INLINE hn::Vec<I16> load_i16(Full, const int16_t* p) {
  return hn::LoadU(I16(), p);
}
HWY_INLINE hn::Vec<I16> load_i16(Part io, const int16_t* p) {
  HWY_ALIGN int16_t lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(lanes, p, io.n * sizeof(int16_t));
  return hn::LoadU(I16(), lanes);
}
HWY_INLINE void store_i16(Full, hn::Vec<I16> v, int16_t* p) {
  hn::StoreU(v, I16(), p);
}
HWY_INLINE void store_i16(Part io, hn::Vec<I16> v, int16_t* p) {
  HWY_ALIGN int16_t lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(v, I16(), lanes);
  std::memcpy(p, lanes, io.n * sizeof(int16_t));
}

// bits(w) = (bits(high) << 16) + remainder, modulo 2^32.
template <typename Io>
HWY_INLINE VF join(Io io, const AdamW& a, int64_t i) {
  const VF high = io.load(static_cast<const uint16_t*>(a.weight.data) + i);
  const VU low = hn::BitCast(U32(), hn::PromoteTo(I32(), load_i16(io, a.remainder + i)));
  return hn::BitCast(F32(), hn::Add(hn::BitCast(U32(), high), low));
}

template <typename Io>
HWY_INLINE void split(Io io, VF w, const AdamW& a, int64_t i) {
  const VU bits = hn::BitCast(U32(), w);
  const VU up = hn::Add(bits, hn::Set(U32(), 0x8000u));
  const VU high = hn::And(up, hn::Set(U32(), 0xFFFF0000u));
  // Half up must not carry a NaN into a zero: it keeps its upper bits and the quiet bit.
  const VU quiet = hn::And(hn::Or(bits, hn::Set(U32(), 0x00400000u)), hn::Set(U32(), 0xFFFF0000u));
  const auto nan = hn::RebindMask(U32(), hn::IsNaN(w));
  const VU kept = hn::IfThenElse(nan, quiet, high);
  const VU rest = hn::IfThenZeroElse(nan, hn::Sub(bits, high));
  io.store(hn::BitCast(F32(), kept), static_cast<uint16_t*>(a.weight.data) + i);
  store_i16(io, hn::DemoteTo(I16(), hn::BitCast(I32(), rest)), a.remainder + i);
}

// These two as in math/moment.h. A mask's lane is -1, which is one place toward zero.
HWY_INLINE VF first_beside(VF m, VF v) {
  const VF root = set(0x1p64f), most = hn::Min(hn::Max(m, hn::Neg(root)), root);
  return hn::IfThenElse(hn::Eq(v, hn::Inf(F32())), most, m);
}
HWY_INLINE VF stored(VF x) {
  const auto is_inf = hn::Eq(hn::Abs(x), hn::Inf(F32()));
  const VU step = hn::BitCast(U32(), hn::VecFromMask(F32(), is_inf));
  return hn::BitCast(F32(), hn::Add(hn::BitCast(U32(), x), step));
}

void Step(const AdamW& a, const AdamWScalars& s, int64_t begin, int64_t end) {
  const VF b1 = set(s.beta1), b2 = set(s.beta2), c1 = set(s.correction1), c2 = set(s.correction2);
  const VF one_b1 = set(1.0f - s.beta1), one_b2 = set(1.0f - s.beta2);
  const VF lr = set(s.lr), eps = set(s.eps), decay = set(s.weight_decay), scale = set(s.grad_scale);
  for_lanes(begin, end, [&](int64_t i, auto io) HWY_ATTR {
    const VF g = hn::Mul(load(io, a.grad, i), scale);
    const VF m = hn::Add(hn::Mul(b1, io.load(a.m + i)), hn::Mul(one_b1, g));
    const VF v = hn::Add(hn::Mul(b2, io.load(a.v + i)), hn::Mul(hn::Mul(one_b2, g), g));
    const VF w = a.remainder != nullptr ? join(io, a, i)
                                        : io.load(static_cast<const float*>(a.weight.data) + i);
    const VF ratio = hn::Div(hn::Div(m, c1), hn::Add(hn::Sqrt(hn::Div(v, c2)), eps));
    const VF next = hn::Sub(w, hn::Mul(lr, hn::Add(ratio, hn::Mul(decay, w))));
    io.store(stored(first_beside(m, v)), a.m + i);
    io.store(stored(v), a.v + i);
    if (a.remainder != nullptr) {
      split(io, next, a, i);
    } else {
      io.store(next, static_cast<float*>(a.weight.data) + i);
    }
    if (a.copy) store(io, next, a.copy, i);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Step);

void adamw_step(const AdamW& args, const AdamWScalars& scalars, int64_t n, ThreadPool& pool) {
  if ((args.weight.dtype == Dtype::bf16) != (args.remainder != nullptr)) {
    throw Error(ErrorCode::invalid_argument,
                "[adamw_step] a bf16 weight and a remainder go together, got weight {}",
                dtype_name(args.weight.dtype));
  }
  const bool skip = args.skip != nullptr && *args.skip != 0;
  if (skip && args.amax == nullptr) return;
  const auto kernel = HWY_DYNAMIC_DISPATCH(Step);
  for_blocks(pool, n, kBlockElems, [&](int64_t b, int64_t e, int) {
    if (!skip) kernel(args, scalars, b, e);
    if (args.amax != nullptr) args.amax->add(offset(args.weight, b), e - b);
  });
}

}  // namespace octet::cpu
#endif
