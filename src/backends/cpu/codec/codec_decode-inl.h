// Codes of one byte or two to vectors of f32 or bf16, compiled once for each Highway target; the
// other half of codec-inl.h.
#if defined(OCTET_CPU_CODEC_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_CODEC_DECODE_INL_H_
#undef OCTET_CPU_CODEC_DECODE_INL_H_
#else
#define OCTET_CPU_CODEC_DECODE_INL_H_
#endif

#include "backends/cpu/codec/codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <Dtype D>
HWY_INLINE VF decode_ieee(VI code) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kWidth = 1 + kRow.exponent_bits + kRow.fraction_bits;
  constexpr int kMinExponent = 1 - kRow.bias;
  constexpr int32_t kFirstSpecial = kRow.has_inf ? kRow.overflow_code : kRow.nan_code;
  const VI low = hn::And(code, set((1 << (kWidth - 1)) - 1));
  const VI sign = hn::And(hn::ShiftLeft<32 - kWidth>(code), set(INT32_MIN));
  VI x = hn::Add(hn::ShiftLeft<23 - kRow.fraction_bits>(low), set((127 - kRow.bias) << 23));
  if constexpr (kMinExponent > -126) {
    // A subnormal read as 2^min (1 + m) exceeds its value by 2^min.
    const auto small = hn::Lt(low, set(1 << kRow.fraction_bits));
    const VF excess = value(
        hn::IfThenElseZero(small, set(static_cast<int32_t>(bits_of(power_of_two(kMinExponent))))));
    x = hn::Add(x, hn::IfThenElseZero(small, set(1 << 23)));
    x = bits(hn::Sub(value(x), excess));
  }
  x = hn::Or(x, sign);
  if constexpr (kRow.has_inf) {
    x = hn::IfThenElse(hn::Eq(low, set(kFirstSpecial)), hn::Or(set(kF32Inf), sign), x);
    return value(hn::IfThenElse(hn::Gt(low, set(kFirstSpecial)), set(kF32Nan), x));
  }
  return value(hn::IfThenElse(hn::Eq(low, set(kFirstSpecial)), set(kF32Nan), x));
}

// Bits 6..3 choose the layout; in each, bits 2..0 are the low end of exponent and fraction
// together, the exponent's part counting down where it is negative.
HWY_INLINE VF decode_hif8(VI code) {
  const VI low = hn::And(code, set(0x7F));
  const VI layout = shift_right<3>(low);
  const VI tail = hn::Xor(hn::And(code, set(7)), look_up(kHif8Down, layout));
  const VI place = hn::Sub(set(23), look_up(kHif8Place, layout));
  const VI exponent = hn::Add(look_up(kHif8Exponent, layout), set(127 - 23));
  VI x = hn::Add(hn::ShiftLeft<23>(exponent), shift_left_by(tail, place));
  x = hn::IfThenElse(hn::Eq(low, set(0x6F)), set(kF32Inf), x);
  x = hn::Or(x, hn::And(hn::ShiftLeft<24>(code), set(INT32_MIN)));
  x = hn::IfThenZeroElse(hn::Eq(code, hn::Zero(I32())), x);
  return value(hn::IfThenElse(hn::Eq(code, set(0x80)), set(kF32Nan), x));
}

template <Dtype D>
HWY_INLINE VF decode_lanes(VI code) {
  if constexpr (D == Dtype::hif8) {
    return decode_hif8(code);
  } else {
    return decode_ieee<D>(code);
  }
}

HWY_INLINE VI load_codes(const uint8_t* p) {
  return hn::PromoteTo(I32(), hn::LoadU(U8(), p));
}
HWY_INLINE VI load_codes(const uint16_t* p) {
  return hn::PromoteTo(I32(), hn::LoadU(U16(), p));
}
// f32, or the bits of bf16.
HWY_INLINE VF load_values(const float* p) {
  return hn::LoadU(F32(), p);
}
HWY_INLINE VF load_values(const uint16_t* bf16) {
  return value(hn::ShiftLeft<16>(load_codes(bf16)));
}

// Codes of one byte from memory to f32.
template <Dtype D>
HWY_INLINE VF load_decoded(const uint8_t* p) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (D == Dtype::e4m3) {
    // The bits of a half that is 2^-8 times the value, subnormals too; the conversion is exact. The
    // sign is extended, so that the shift brings it to the top.
    const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(-0x4080));
    const VF wide = hn::Mul(VF{_mm512_cvtph_ps(half)}, hn::Set(F32(), 256));
    const __m256i size = _mm256_and_si256(half, _mm256_set1_epi16(0x3F80));
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(size, _mm256_set1_epi16(0x3F80));
    return VF{_mm512_mask_mov_ps(wide.raw, nan, value(set(kF32Nan)).raw)};
  }
#endif
  return decode_lanes<D>(load_codes(p));
}

#if HWY_TARGET <= HWY_AVX3

// Values in bf16 of an IEEE format's codes that are no normal numbers, by their lower 5 bits.
struct alignas(64) SpecialTable {
  uint16_t entry[32];
};
template <Dtype D>
constexpr SpecialTable make_special_table() {
  SpecialTable table{};
  constexpr uint32_t kSmall = 1u << format_row(D).fraction_bits;
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t code = i < kSmall ? i : 0x60u | i;
    table.entry[i] = static_cast<uint16_t>(bits_of(decode<D>(code)) >> 16);
  }
  return table;
}
template <Dtype D>
constexpr SpecialTable kSpecialTable = make_special_table<D>();

// 32 codes to bf16: a shift and the bias for normal numbers, the table for all others.
template <Dtype D>
HWY_INLINE void decode_32_to_bf16(const uint8_t* codes, uint16_t* x) {
  constexpr FormatRow kRow = format_row(D);
  constexpr int kFirstSpecial = kRow.has_inf ? kRow.overflow_code : kRow.nan_code;
  constexpr int kAbove = 0x80 - kFirstSpecial;  // Inf and NaN
  const auto number = [](int n) HWY_ATTR { return _mm512_set1_epi16(static_cast<int16_t>(n)); };
  const __m512i code =
      _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  const __m512i low = _mm512_and_si512(code, number(0x7F));
  const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(low, 7 - kRow.fraction_bits),
                                          number((127 - kRow.bias) << 7));
  const __m512i turned = _mm512_and_si512(_mm512_add_epi16(low, number(kAbove)), number(0x7F));
  const __mmask32 special =
      _mm512_cmplt_epu16_mask(turned, number(kAbove + (1 << kRow.fraction_bits)));
  const __mmask32 signed_ =
      _mm512_cmple_epu16_mask(low, number(kRow.has_inf ? kFirstSpecial : kFirstSpecial - 1));
  const __m512i table = _mm512_load_si512(kSpecialTable<D>.entry);
  const __m512i size = _mm512_mask_permutexvar_epi16(normal, special, code, table);
  const __m512i sign =
      _mm512_maskz_mov_epi16(signed_, _mm512_and_si512(_mm512_slli_epi16(code, 8), number(0x8000)));
  _mm512_storeu_si512(x, _mm512_or_si512(size, sign));
}

#endif

#endif  // vector targets

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_CODEC_DECODE_INL_H_
