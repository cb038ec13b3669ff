// Codes of one byte or two in vectors, compiled once for each Highway target. Everything that
// rounds is integer arithmetic on f32 bits in 32-bit or 16-bit lanes: it never relies on a
// conversion instruction, so that all targets give the same bits. Targets without vectors have none
// of it.
#if defined(OCTET_CPU_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_CODEC_INL_H_
#undef OCTET_CPU_CODEC_INL_H_
#else
#define OCTET_CPU_CODEC_INL_H_
#endif

#include <hwy/highway.h>
#include "backends/cpu/codec/codec.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;
using U8 = hn::Rebind<uint8_t, F32>;
using I16x2 = hn::Repartition<int16_t, F32>;
using U8x2 = hn::Rebind<uint8_t, I16x2>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;

HWY_INLINE VI set(int32_t value) {
  return hn::Set(I32(), value);
}
HWY_INLINE VI bits(VF x) {
  return hn::BitCast(I32(), x);
}
HWY_INLINE VF value(VI x) {
  return hn::BitCast(F32(), x);
}
// Logical shift to the right.
template <int kBits>
HWY_INLINE VI shift_right(VI x) {
  return hn::BitCast(I32(), hn::ShiftRight<kBits>(hn::BitCast(U32(), x)));
}
HWY_INLINE VI shift_left_by(VI x, VI count) {
  return hn::BitCast(I32(), hn::Shl(hn::BitCast(U32(), x), hn::BitCast(U32(), count)));
}

// Sixteen bytes to look up by the low 4 bits of each lane. Entry 0 must be 0: the lane's upper
// bytes read it.
struct alignas(16) Table {
  uint8_t entry[16];
};
template <class V>
HWY_INLINE V look_up(const Table& table, V index) {
  const hn::DFromV<V> d;
  const hn::Repartition<uint8_t, decltype(d)> d8;
  const auto entries = hn::LoadDup128(d8, table.entry);
  return hn::BitCast(d, hn::TableLookupBytes(entries, hn::BitCast(d8, index)));
}

// HiF8 by |exponent|: code of 2^exponent minus 0x08, for positive and negative exponents.
constexpr Table kHif8Up = {{0x00, 0x08, 0x18, 0x20, 0x38, 0x3C, 0x40, 0x44,  //
                            0x58, 0x5A, 0x5C, 0x5E, 0x60, 0x62, 0x64, 0x66}};
constexpr Table kHif8Below = {{0x00, 0x10, 0x28, 0x30, 0x48, 0x4C, 0x50, 0x54,  //
                               0x68, 0x6A, 0x6C, 0x6E, 0x70, 0x72, 0x74, 0x76}};
// By |exponent| / 4: half a place in the last of 7 fraction bits, minus 8; and 2^4 over the cut
// fraction bits beyond 4.
constexpr Table kHif8Half = {{0, 8, 24, 24, 56, 56, 56, 56, 56, 56, 56, 56, 56, 56, 56, 56}};
constexpr Table kHif8Shift = {{16, 8, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}};
// HiF8 by bits 6..3 of the code: least exponent + 23; 23 minus the place of bit 0 in the f32; which
// of bits 2..0 count down.
constexpr Table kHif8Exponent = {{0, 23, 24, 22, 25, 26, 21, 20, 27, 29, 18, 16, 31, 35, 12, 8}};
constexpr Table kHif8Place = {{0, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1}};
constexpr Table kHif8Down = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 0, 0, 6, 6}};

// The code of each lane, nearest even; at most `limit` in magnitude.
template <Dtype D>
HWY_INLINE VI encode_ieee(VF x, int32_t limit) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kDrop = 23 - kRow.fraction_bits;
  constexpr int kWidth = 1 + kRow.exponent_bits + kRow.fraction_bits;
  constexpr int kMinExponent = 1 - kRow.bias;
  const VI all = bits(x);
  const VI magnitude = hn::And(all, set(kF32Magnitude));
  const VI odd = hn::And(shift_right<kDrop>(magnitude), set(1));
  const VI rounded = hn::Add(magnitude, hn::Add(odd, set((1 << (kDrop - 1)) - 1)));
  VI code = hn::Sub(shift_right<kDrop>(rounded), set((127 - kRow.bias) << kRow.fraction_bits));
  if constexpr (kMinExponent > -126) {
    // Adding a power of two whose last place is the subnormals' unit rounds to it, to nearest even.
    const VI unit = set(static_cast<int32_t>(bits_of(power_of_two(kMinExponent + kDrop))));
    const VI small = hn::Sub(bits(hn::Add(value(magnitude), value(unit))), unit);
    const VI least = set(static_cast<int32_t>(bits_of(power_of_two(kMinExponent))));
    code = hn::IfThenElse(hn::Lt(magnitude, least), small, code);
  }
  const VI sign = hn::And(shift_right<32 - kWidth>(all), set(1 << (kWidth - 1)));
  code = hn::Or(hn::Min(code, set(limit)), sign);
  return hn::IfThenElse(hn::Gt(magnitude, set(kF32Inf)), set(kRow.nan_code), code);
}

#if HWY_TARGET <= HWY_AVX3

// The code of each lane, nearest even, saturated. A power of two whose last place is the code's, of
// numbers in x's octave and of subnormal ones alike, rounds to it when it is added.
template <Dtype D>
HWY_INLINE VI encode_byte(VF x) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kDrop = 23 - kRow.fraction_bits;
  constexpr int kMin = 128 - kRow.bias;  // the exponent of normal numbers in an f32
  constexpr int kUnits = (kMin << kRow.fraction_bits) + (kDrop << kRow.fraction_bits);
  constexpr float kTop = decode<D>(kRow.max_code);
  const VI all = bits(x);
  const __mmask16 nan = _mm512_cmp_ps_mask(x.raw, x.raw, _CMP_UNORD_Q);
  const VF size = hn::Min(value(hn::And(all, set(kF32Magnitude))), hn::Set(F32(), kTop));
  const VI octave = hn::Max(hn::And(bits(size), set(kF32Inf)), set(kMin << 23));
  const VI place = hn::Add(octave, set(kDrop << 23));
  const VI units = hn::Sub(bits(hn::Add(size, value(place))), place);
  const VI code = hn::Add(units, hn::Sub(shift_right<kDrop>(place), set(kUnits)));
  const __m512i sign = shift_right<24>(all).raw;
  const __m512i with_sign = _mm512_ternarylogic_epi32(code.raw, sign, set(0x80).raw, 0xF8);
  return VI{_mm512_mask_mov_epi32(with_sign, nan, set(kRow.nan_code).raw)};
}

#endif

// HiF8 of two vectors, nearest, ties away, in 16-bit lanes: fractions have 3 bits at most and ties
// go one way, so the upper half of an f32 decides (a NaN that comes from a product is quiet and
// shows there too). Half a place is added, then the exponent after the carry chooses the layout.
HWY_INLINE hn::Vec<U8x2> encode_hif8(VF lo, VF hi) {
  const I16x2 d;
  const hn::RebindToUnsigned<I16x2> du;
  const auto all = hn::BitCast(d, hn::ConcatOdd(du, hn::BitCast(du, hi), hn::BitCast(du, lo)));
  const auto number = [&](int value) HWY_ATTR { return hn::Set(d, static_cast<int16_t>(value)); };
  const auto magnitude = hn::And(all, number(0x7FFF));
  const auto capped = hn::Min(magnitude, number(bits_of(0x1p15f) >> 16));
  const auto before = hn::Abs(hn::Sub(hn::ShiftRight<7>(capped), number(127)));
  const auto half = hn::Add(look_up(kHif8Half, hn::ShiftRight<2>(before)), number(8));
  const auto rounded = hn::Add(capped, half);
  const auto exponent = hn::Sub(hn::ShiftRight<7>(rounded), number(127));
  const auto after = hn::Abs(exponent);
  const auto shift = hn::ShiftLeft<8>(look_up(kHif8Shift, hn::ShiftRight<2>(after)));
  const auto fraction = hn::MulHigh(hn::And(rounded, number(0x7F)), shift);
  const auto below = hn::Lt(exponent, hn::Zero(d));
  const auto base = hn::IfThenElse(below, look_up(kHif8Below, after), look_up(kHif8Up, after));
  auto code = hn::Add(hn::Add(base, number(0x08)), fraction);
  const auto tiny = hn::Max(hn::Add(exponent, number(23)), number(1));
  code = hn::IfThenElse(hn::Lt(exponent, number(-15)), tiny, code);
  code = hn::Or(code, hn::And(hn::ShiftRight<8>(all), number(0x80)));
  code = hn::IfThenZeroElse(hn::Lt(magnitude, number(bits_of(0x1p-23f) >> 16)), code);
  code = hn::IfThenElse(hn::Gt(magnitude, number(kF32Inf >> 16)), number(0x80), code);
  return hn::DemoteTo(U8x2(), code);
}

// Bytes have saturated, the 16-bit formats keep overflow.
template <Dtype D>
HWY_INLINE VI encode_lanes(VF x) {
  constexpr FormatRow kRow = format_row(D);
#if HWY_TARGET <= HWY_AVX3
  if constexpr (D == Dtype::e4m3 || D == Dtype::e5m2) return encode_byte<D>(x);
#endif
  return encode_ieee<D>(x, dtype_bytes(D) == 1 ? kRow.max_code : kRow.overflow_code);
}

// The low byte of each lane; the lanes are 0 to 255.
HWY_INLINE void store_bytes(VI code, uint8_t* to) {
#if HWY_TARGET <= HWY_AVX3
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(code.raw));
#else
  hn::StoreU(hn::DemoteTo(U8(), code), U8(), to);
#endif
}

// Two vectors to codes of one byte.
template <Dtype D>
HWY_INLINE void store_codes(VF lo, VF hi, uint8_t* codes) {
  if constexpr (D == Dtype::hif8) {
    hn::StoreU(encode_hif8(lo, hi), U8x2(), codes);
  } else {
    store_bytes(encode_lanes<D>(lo), codes);
    store_bytes(encode_lanes<D>(hi), codes + hn::Lanes(U8()));
  }
}

#endif  // vector targets

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_CODEC_INL_H_
