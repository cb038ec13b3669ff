#include "backends/cpu/adamw/adamw_vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/adamw/adamw_vectors.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/divider-inl.h"
#include "backends/cpu/common/philox-inl.h"
#include "backends/cpu/common/simd_math-inl.h"
#include "formats/bits.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

using VI = hn::Vec<I32>;
using I16 = hn::Rebind<int16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;

HWY_INLINE VI bits(VF x) {
  return hn::BitCast(I32(), x);
}
HWY_INLINE VF value(VI x) {
  return hn::BitCast(F32(), x);
}
HWY_INLINE VI seti(uint32_t x) {
  return hn::Set(I32(), static_cast<int32_t>(x));
}

// fn(i) for the start of each vector.
template <typename Fn>
HWY_INLINE void each(int64_t n, Fn&& fn) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t i = 0; i < n; i += lanes) fn(i);
}
HWY_INLINE VF at(const float* x, int64_t i) {
  return hn::LoadU(F32(), x + i);
}

// bits(x) = (hi << 16) + lo, modulo 2^32.
HWY_INLINE VF join_at(const uint16_t* hi, const int16_t* lo, int64_t i) {
  const VU low = hn::BitCast(U32(), hn::PromoteTo(I32(), hn::LoadU(I16(), lo + i)));
  return hn::BitCast(F32(), hn::Add(hn::BitCast(U32(), Full().load(hi + i)), low));
}

// The lower halves of the lanes; SSE's and AVX2's packing saturates, so it gets values that fit.
template <class D16>
HWY_INLINE void store_low_halves(VU x, D16 d, hn::TFromD<D16>* to) {
#if HWY_TARGET <= HWY_AVX3
  hn::StoreU(hn::BitCast(d, hn::Vec<U16>{_mm512_cvtepi32_epi16(x.raw)}), d, to);
#else
  const VI wide = hn::ShiftRight<16>(hn::BitCast(I32(), hn::ShiftLeft<16>(x)));
  hn::StoreU(hn::BitCast(d, hn::DemoteTo(I16(), wide)), d, to);
#endif
}

// split_master of math/master.h.
HWY_INLINE void split_at(VF x, uint16_t* hi, int16_t* lo, int64_t i) {
  const VU all = hn::BitCast(U32(), x);
  const auto nan = hn::RebindMask(U32(), hn::IsNaN(x));
  const VU half_up = hn::Add(all, hn::Set(U32(), 0x8000u));
  const VU high = hn::IfThenElse(nan, hn::Or(all, hn::Set(U32(), 0x00400000u)), half_up);
  store_low_halves(hn::ShiftRight<16>(high), U16(), hi + i);
  store_low_halves(hn::IfThenZeroElse(nan, all), I16(), lo + i);
}

HWY_INLINE VI load_codes(const uint8_t* codes, int64_t i) {
  return hn::PromoteTo(I32(), hn::LoadU(U8(), codes + i));
}

// 2^(n + f), n an integer with a normal result, |f| <= 1/2 or little more; relative error 1.2e-7.
HWY_INLINE VF exp2_parts(VF n, VF f) {
  const VF r = hn::Mul(f, set(0.693147181f));
  const VF p = hn::Add(set(1.0f), hn::MulAdd(hn::Mul(r, r), exp_tail(r), r));
  return value(hn::Add(bits(p), hn::ShiftLeft<23>(hn::ConvertTo(I32(), n))));
}

// A code relative to the target: |q| / target = 2^(whole + part).
struct Power {
  VF whole, part;
  VI sign;  // in the sign's place
  hn::Mask<F32> zero;
};

struct GatheredPower {
  const DecodeTable& table;
  HWY_INLINE Power operator()(VI code) const {
    const VF whole = hn::GatherIndex(F32(), table.whole, code);
    const VF part = hn::GatherIndex(F32(), table.part, code);
    return {whole, part, hn::ShiftLeft<31>(bits(part)), hn::Eq(whole, set(kNoPower))};
  }
};

// IEEE formats: the fraction's bits look up what they mean in registers.
template <int kFraction>
struct IeeeCode {
  VI low, fraction, exponent;
  hn::Mask<I32> subnormal;
  HWY_INLINE explicit IeeeCode(VI code)
      : low(hn::And(code, seti(0x7F))),
        fraction(hn::And(low, seti((1u << kFraction) - 1))),
        exponent(hn::ShiftRight<kFraction>(low)),
        subnormal(hn::Lt(low, seti(1u << kFraction))) {}
  HWY_INLINE VF look_up(const float* entries) const {
    if constexpr (HWY_TARGET <= HWY_AVX3) {  // a register holds all 16
      const VI index = hn::Add(fraction, hn::IfThenElseZero(subnormal, seti(8)));
      return hn::TableLookupLanes(hn::LoadU(F32(), entries), hn::IndicesFromVec(F32(), index));
    } else {
      const auto lanes = hn::IndicesFromVec(F32(), fraction);
      const VF normal = hn::TableLookupLanes(hn::LoadU(F32(), entries), lanes);
      const VF below = hn::TableLookupLanes(hn::LoadU(F32(), entries + 8), lanes);
      return hn::IfThenElse(hn::RebindMask(F32(), subnormal), below, normal);
    }
  }
};

template <int kFraction>
struct FractionPower {
  const DecodeTable& table;
  HWY_INLINE Power operator()(VI code) const {
    const IeeeCode<kFraction> c(code);
    const VI whole = hn::Sub(c.exponent, seti(static_cast<uint32_t>(table.exponent_offset)));
    return {hn::ConvertTo(F32(), whole), c.look_up(table.part_of_fraction),
            hn::ShiftLeft<24>(hn::Xor(code, c.low)),
            hn::RebindMask(F32(), hn::Eq(c.low, hn::Zero(I32())))};
  }
};

template <int kFraction>
HWY_INLINE void decode_ratios(const DecodeTable& table, float amax, const uint8_t* codes, int64_t n,
                              float* x) {
  const VF scale = set(amax);
  each(n, [&](int64_t i) HWY_ATTR {
    const VI code = load_codes(codes, i);
    const IeeeCode<kFraction> c(code);
    const VI whole = hn::Sub(c.exponent, seti(static_cast<uint32_t>(table.exponent_offset)));
    const VI scaled = hn::Add(bits(c.look_up(table.ratio_of_fraction)), hn::ShiftLeft<23>(whole));
    const VI ratio = hn::IfThenZeroElse(hn::Eq(c.low, hn::Zero(I32())), scaled);
    const VI sign = hn::ShiftLeft<24>(hn::Xor(code, c.low));
    hn::StoreU(hn::Mul(value(hn::Or(ratio, sign)), scale), F32(), x + i);
  });
}

void DecodePlain(const DecodeTable& table, float amax, const uint8_t* codes, int64_t n, float* x) {
#if HWY_TARGET <= HWY_AVX2  // tables of eight and more lanes
  if (table.fraction_bits == 3) return decode_ratios<3>(table, amax, codes, n, x);
  if (table.fraction_bits == 2) return decode_ratios<2>(table, amax, codes, n, x);
#endif
  const VF scale = set(amax);
  each(n, [&](int64_t i) HWY_ATTR {
    const VF ratio = hn::GatherIndex(F32(), table.ratio, load_codes(codes, i));
    hn::StoreU(hn::Mul(ratio, scale), F32(), x + i);
  });
}

// y = (whole + part) (inv_hi + inv_lo) as n + f: whole inv_hi is exact, and so is its difference to
// n.
template <typename PowerOf>
HWY_INLINE void decode_powers(PowerOf power_of, const Contraction& c, const uint8_t* codes,
                              int64_t n, float* x) {
  const VF hi = set(c.inv_hi), lo = set(c.inv_lo), inv = set(c.inv_hi + c.inv_lo);
  const VF amax = set(c.amax);
  each(n, [&](int64_t i) HWY_ATTR {
    const Power power = power_of(load_codes(codes, i));
    const VF rest = hn::MulAdd(power.whole, lo, hn::Mul(power.part, inv));
    const VF exact = hn::Mul(power.whole, hi);
    const VF whole = hn::Round(hn::Add(exact, rest));
    const VF f = hn::Add(hn::Sub(exact, whole), rest);
    const VF size = hn::IfThenZeroElse(power.zero, hn::Mul(exp2_parts(whole, f), amax));
    hn::StoreU(value(hn::Or(bits(size), power.sign)), F32(), x + i);
  });
}

void DecodeExpanded(const DecodeTable& table, const Contraction& c, const uint8_t* codes, int64_t n,
                    float* x) {
#if HWY_TARGET <= HWY_AVX2  // tables of eight and more lanes
  if (table.fraction_bits == 3) return decode_powers(FractionPower<3>{table}, c, codes, n, x);
  if (table.fraction_bits == 2) return decode_powers(FractionPower<2>{table}, c, codes, n, x);
#endif
  decode_powers(GatheredPower{table}, c, codes, n, x);
}

// max(size, least) with x's sign, and 0 where x is.
HWY_INLINE VF finish_scale(VF x, VF size, VF least) {
  const VF kept = hn::IfThenZeroElse(hn::Eq(x, zero()), hn::Max(size, least));
  return hn::CopySignToAbs(kept, x);
}

void ScalePlain(const ExpansionOf& e, const float* x, int64_t n, float* y) {
  const VF amax = set(e.amax), target = set(e.target), least = set(e.least);
  each(n, [&](int64_t i) HWY_ATTR {
    const VF xi = at(x, i);
    const VF size = hn::Mul(hn::Div(hn::Abs(xi), amax), target);
    hn::StoreU(finish_scale(xi, size, least), F32(), y + i);
  });
}

// log2(x), x normal and positive, absolute error 2e-6: x = m 2^e with m in [sqrt(1/2), sqrt(2)),
// s = (m - 1) / (m + 1), log2 m = 2 / ln 2 (s + s^3/3 + s^5/5).
HWY_INLINE VF log2_normal(VF x) {
  const VI all = bits(x);
  const VI e = hn::ShiftRight<23>(hn::Sub(all, seti(0x3F3504F3u)));
  const VF m = value(hn::Sub(all, hn::ShiftLeft<23>(e)));
  const VF s = hn::Div(hn::Sub(m, set(1.0f)), hn::Add(m, set(1.0f)));
  const VF s2 = hn::Mul(s, s);
  VF p = set(0.577078016f);
  p = hn::MulAdd(p, s2, set(0.961796694f));
  p = hn::MulAdd(p, s2, set(2.88539008f));
  return hn::MulAdd(p, s, hn::ConvertTo(F32(), e));
}

// 2^y target for y >= -126: Taylor's series of 2^f to the fifth power, |f| <= 1/2, error 3e-6: far
// inside what a code sees.
void ScaleExpanded(const ExpansionOf& e, const float* x, int64_t n, float* y) {
  const VF inv = set(1.0f / e.amax), k = set(e.k), least = set(e.least);
  const VF c0 = set(e.target), c1 = set(e.target * 0.69314718f), c2 = set(e.target * 0.24022651f);
  const VF c3 = set(e.target * 0.05550411f), c4 = set(e.target * 0.00961813f);
  const VF c5 = set(e.target * 0.00133336f);
  each(n, [&](int64_t i) HWY_ATTR {
    const VF xi = at(x, i);
    const VF power = hn::Max(hn::Mul(log2_normal(hn::Mul(hn::Abs(xi), inv)), k), set(-126.0f));
    const VF whole = hn::Round(power);
    const VF f = hn::Sub(power, whole);
    VF p = hn::MulAdd(c5, f, c4);
    p = hn::MulAdd(p, f, c3);
    p = hn::MulAdd(p, f, c2);
    p = hn::MulAdd(p, f, c1);
    p = hn::MulAdd(p, f, c0);
    const VF size = value(hn::Add(bits(p), hn::ShiftLeft<23>(hn::ConvertTo(I32(), whole))));
    hn::StoreU(finish_scale(xi, size, least), F32(), y + i);
  });
}

// Magnitudes compare as integers; a zero is no minimum: less 1, it is above all.
struct RangeLanes {
  VI amax;
  VU below_amin;
  HWY_INLINE void add(VF x) {
    const VI magnitude = hn::And(bits(x), seti(kF32Magnitude));
    amax = hn::Max(amax, magnitude);
    below_amin = hn::Min(below_amin, hn::BitCast(U32(), hn::Sub(magnitude, seti(1))));
  }
  HWY_INLINE BitRange get() const {
    return {static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), amax))),
            hn::GetLane(hn::MinOfLanes(U32(), below_amin)) + 1};
  }
};

void Random(const RandomStream& stream, int64_t first, int64_t n, uint32_t* words) {
  const Words words_of(stream);
  static_assert(kPad == kWordsAtOnce);
  for (int64_t i = 0; i < n; i += kPad) words_of(static_cast<uint64_t>(first + i), words + i);
}

// stochastic_bf16 of math/master.h: upper random bits below the last place, then cut.
HWY_INLINE void store_stochastic(VF x, const uint32_t* random, uint16_t* bf16) {
  const VU up = hn::ShiftRight<16>(hn::LoadU(U32(), random));
  const VU cut = hn::ShiftRight<16>(hn::Add(hn::BitCast(U32(), x), up));
  const auto nan = hn::RebindMask(U32(), hn::IsNaN(x));
  const VU code = hn::IfThenElse(nan, hn::Set(U32(), 0x7FFFu), cut);
#if HWY_TARGET <= HWY_AVX3
  hn::StoreU(hn::Vec<U16>{_mm512_cvtepi32_epi16(code.raw)}, U16(), bf16);
#else
  hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), code)), U16(), bf16);
#endif
}

void NarrowStochastic(const float* x, const uint32_t* random, int64_t n, uint16_t* bf16) {
  each(n, [&](int64_t i) HWY_ATTR { store_stochastic(at(x, i), random + i, bf16 + i); });
}

// These two as in math/moment.h. A mask's lane is -1, which is one place toward zero.
HWY_INLINE VF first_beside(VF m, VF v) {
  const VF root = set(0x1p64f), most = hn::Min(hn::Max(m, hn::Neg(root)), root);
  return hn::IfThenElse(hn::Eq(v, hn::Inf(F32())), most, m);
}
HWY_INLINE VF stored(VF x) {
  const auto is_inf = hn::Eq(hn::Abs(x), hn::Inf(F32()));
  return value(hn::Add(bits(x), bits(hn::VecFromMask(F32(), is_inf))));
}

enum class Weights { wide, split, stochastic };

// kRanges: of the moments, which are else made finite as they are stored.
template <bool kNarrowGrad, Weights kWeights, bool kMultiply, bool kRanges>
void UpdateAs(const AdamwConstants& k, const UpdateSpan& s, int64_t n, BitRanges* ranges) {
  const VF b1 = set(k.beta1), b2 = set(k.beta2);
  const Divider c1(k.c1), c2(k.c2);
  const VF one_b1 = set(k.rest1), one_b2 = set(k.rest2);
  const VF lr = set(k.lr), eps = set(k.eps), decay = set(k.weight_decay), scale = set(k.grad_scale);
  const auto* const g = static_cast<const float*>(s.grad.data);
  const auto* const narrow_g = static_cast<const uint16_t*>(s.grad.data);
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  // Words are drawn here, while the divisions below keep their unit busy.
  constexpr bool kDraws = kWeights == Weights::stochastic;
  const Words words_of(kDraws ? *s.random : RandomStream{});
  HWY_ALIGN uint32_t words[kPad];
  for (int64_t end = 0, i = 0; i < n;) {
    RangeLanes range_m{hn::Zero(I32()), hn::Set(U32(), kF32Inf - 1)}, range_v = range_m;
    for (end += s.group; i < end; i += lanes) {
      if (kDraws && i % kPad == 0) words_of(static_cast<uint64_t>(s.first_word + i), words);
      const VF gi = hn::Mul(kNarrowGrad ? Full().load(narrow_g + i) : at(g, i), scale);
      const VF mi = hn::Add(hn::Mul(b1, at(s.m, i)), hn::Mul(one_b1, gi));
      const VF vi = hn::Add(hn::Mul(b2, at(s.v, i)), hn::Mul(hn::Mul(one_b2, gi), gi));
      const VF wi = kWeights == Weights::split  ? join_at(s.hi, s.lo, i)
                    : kWeights == Weights::wide ? at(s.w, i)
                                                : Full().load(s.hi + i);
      const bool fast = kMultiply && Divider::all_hold(mi, vi);
      const VF m_c1 = fast ? c1.multiply(mi) : c1.divide(mi);
      const VF v_c2 = fast ? c2.multiply(vi) : c2.divide(vi);
      const VF step = hn::Div(m_c1, hn::Add(hn::Sqrt(v_c2), eps));
      const VF next = hn::Sub(wi, hn::Mul(lr, hn::Add(step, hn::Mul(decay, wi))));
      if constexpr (kWeights == Weights::split) {
        split_at(next, s.hi_to, s.lo_to, i);
      } else if constexpr (kWeights == Weights::wide) {
        hn::StoreU(next, F32(), s.w_to + i);
      } else {
        store_stochastic(next, words + i % kPad, s.hi_to + i);
      }
      hn::StoreU(kRanges ? mi : stored(first_beside(mi, vi)), F32(), s.m_to + i);
      hn::StoreU(kRanges ? vi : stored(vi), F32(), s.v_to + i);
      if constexpr (kRanges) {
        range_m.add(mi);
        range_v.add(vi);
      }
    }
    if constexpr (kRanges) *ranges++ = {range_m.get(), range_v.get()};
  }
}

template <Weights kWeights, bool kMultiply>
void UpdateOf(const AdamwConstants& k, const UpdateSpan& span, int64_t n, BitRanges* ranges) {
  const bool is_narrow = span.grad.dtype == Dtype::bf16;
  const auto update = ranges == nullptr ? (is_narrow ? UpdateAs<true, kWeights, kMultiply, false>
                                                     : UpdateAs<false, kWeights, kMultiply, false>)
                                        : (is_narrow ? UpdateAs<true, kWeights, kMultiply, true>
                                                     : UpdateAs<false, kWeights, kMultiply, true>);
  update(k, span, n, ranges);
}

template <bool kMultiply>
void UpdateBy(const AdamwConstants& k, const UpdateSpan& span, int64_t n, BitRanges* ranges) {
  if (span.w != nullptr) return UpdateOf<Weights::wide, kMultiply>(k, span, n, ranges);
  if (span.lo != nullptr) return UpdateOf<Weights::split, kMultiply>(k, span, n, ranges);
  UpdateOf<Weights::stochastic, kMultiply>(k, span, n, ranges);
}

void Update(const AdamwConstants& k, const UpdateSpan& span, int64_t n, BitRanges* ranges) {
#if HWY_TARGET <= HWY_AVX3
  if (span.multiply && Divider::is_plain(k.c1) && Divider::is_plain(k.c2))
    return UpdateBy<true>(k, span, n, ranges);
#endif
  UpdateBy<false>(k, span, n, ranges);
}

AdamwVectors Vectors() {
  return {NarrowStochastic, DecodePlain, DecodeExpanded, ScalePlain, ScaleExpanded, Update, Random};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {

HWY_EXPORT(Vectors);

AdamwVectors adamw_vectors() {
  return HWY_DYNAMIC_DISPATCH(Vectors)();
}

}  // namespace octet::cpu
#endif
