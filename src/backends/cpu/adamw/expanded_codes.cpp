#include "backends/cpu/adamw/expanded_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/adamw/expanded_codes.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd-inl.h"
#include "math/expansion.h"

#ifndef OCTET_CPU_EXPANDED_CODES
#define OCTET_CPU_EXPANDED_CODES
namespace octet::cpu {
namespace {

// Cells are 1 / 2^fraction octaves wide and begin this far beyond a power of two: then each holds
// one limit between codes at most, and in normal numbers exactly one.
constexpr double kCellOffset = 0.05;

// log2(m) - (m - 1) for m in [1, 2], fitted; absolute error 4e-6 in f32.
constexpr float kLogBump[] = {-2.04004025f, 5.11296320f,  -5.34198904f,  3.28652883f,
                              -1.26691830f, 0.275148779f, -0.0256910883f};

}  // namespace
}  // namespace octet::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX3

using VI = hn::Vec<I32>;
using U8 = hn::Rebind<uint8_t, F32>;

HWY_INLINE VI set_bits(uint32_t x) {
  return hn::Set(I32(), static_cast<int32_t>(x));
}
// Entry of a table of 16, by the lower four bits of the index.
HWY_INLINE VF look_up(VF entries, VI index) {
  return VF{_mm512_permutexvar_ps(index.raw, entries.raw)};
}
// Entry of a table of 32, by the lower five.
HWY_INLINE VF look_up(VF low, VF high, VI index) {
  return VF{_mm512_permutex2var_ps(low.raw, index.raw, high.raw)};
}
HWY_INLINE VI look_up(VI low, VI high, VI index) {
  return VI{_mm512_permutex2var_epi32(low.raw, index.raw, high.raw)};
}

template <int kFraction>
void Decode(const ExpandedCodes& format, std::span<const DecodeJob> jobs, int64_t n) {
  constexpr bool kSignInTable = kFraction == 3;
  const F32 d;
  const VI exponent_bits = set_bits(0x7Fu & ~((1u << kFraction) - 1));
  for (const DecodeJob& job : jobs) {
    const PowerRow& row = format.rows[meta_k16(job.meta)];
    const VF scale = set(meta_amax(job.meta));
    const VF low = hn::Mul(hn::LoadU(d, row.exponent), scale);
    const VF high = hn::Mul(hn::LoadU(d, row.exponent + 16), scale);
    const VF normal = hn::LoadU(d, row.normal), subnormal = hn::LoadU(d, row.subnormal);
    const uint8_t* const codes = job.codes;
    float* const x = job.x;
    for (int64_t i = 0; i < n; i += 16) {
      const VI code = hn::PromoteTo(I32(), hn::LoadU(U8(), codes + i));
      const VF power = look_up(low, high, hn::ShiftRight<kFraction>(code));
      const __mmask16 is_small = _mm512_testn_epi32_mask(code.raw, exponent_bits.raw);
      const VF part{
          _mm512_mask_permutexvar_ps(look_up(normal, code).raw, is_small, code.raw, subnormal.raw)};
      VF value = hn::Mul(power, part);
      if constexpr (!kSignInTable) {
        const VI sign = hn::And(hn::ShiftLeft<24>(code), set_bits(0x80000000u));
        value = hn::Or(value, hn::BitCast(d, sign));
      }
      hn::StoreU(value, d, x + i);
    }
  }
}

// Polynomial kLogBump, pairs first: the chain of dependent operations is what limits the loop.
HWY_INLINE VF log_bump(VF m) {
  const auto pair = [&](int i)
                        HWY_ATTR { return hn::MulAdd(set(kLogBump[i + 1]), m, set(kLogBump[i])); };
  const VF square = hn::Mul(m, m);
  const VF upper = hn::MulAdd(hn::MulAdd(pair(5), square, pair(3)), square, pair(1));
  return hn::MulAdd(upper, m, set(kLogBump[0]));
}

template <int kFraction>
void Encode(const ExpandedCodes& format, std::span<const EncodeJob> jobs, int64_t n) {
  constexpr uint32_t kNormals = static_cast<uint32_t>(kFraction) << kFraction;  // their first cell
  constexpr uint32_t kOne = bits_of(1.0f), kFractionBits = 0x7FFFFFu;
  constexpr int kDrop = 23 - kFraction;
  constexpr float kOctave = 0x1p23f;
  const I32 d;
  const VI low = hn::LoadU(d, format.limits), high = hn::LoadU(d, format.limits + 16);
  for (const EncodeJob& job : jobs) {
    const float k = static_cast<float>(meta_k16(job.meta)) * 0.0625f;
    const uint32_t top_bits = bits_of(meta_amax(job.meta));
    const float top = float_of((top_bits & kFractionBits) | kOne);
    float bump = kLogBump[6];
    for (int i = 5; i >= 0; --i) bump = bump * top + kLogBump[i];
    const VF slope = set(k), weight = set(k * kOctave);
    const VF start = set((format.log2_top - k * bump) * kOctave);
    const VI top_line = set_bits(top_bits);
    const float* const x = job.x;
    uint8_t* const codes = job.codes;
    for (int64_t i = 0; i < n; i += 16) {
      const VI bits = hn::BitCast(d, hn::LoadU(F32(), x + i));
      const VI magnitude = hn::And(bits, set_bits(kF32Magnitude));
      const VF line = hn::ConvertTo(F32(), hn::Sub(magnitude, top_line));
      const VF m = hn::BitCast(F32(), hn::OrAnd(set_bits(kOne), bits, set_bits(kFractionBits)));
      VF p = log_bump(m);
      const VF place = hn::MulAdd(line, slope, hn::MulAdd(p, weight, start));
      // No conversion overflows upward; downward it gives the lowest number.
      const VI at = hn::Max(VI{_mm512_cvttps_epi32(place.raw)}, hn::Zero(d));
      const VI cell = hn::ShiftRight<kDrop>(at);
      const VI entry =
          hn::Min(cell, hn::OrAnd(set_bits(kNormals), cell, set_bits((1u << kFraction) - 1)));
      const VI size = hn::ShiftRight<kDrop>(hn::Add(at, look_up(low, high, entry)));
      const VI code = hn::OrAnd(size, hn::ShiftRight<24>(bits), set_bits(0x80u));
      const __mmask16 nonzero = _mm512_test_epi32_mask(magnitude.raw, magnitude.raw);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                       _mm512_maskz_cvtepi32_epi8(nonzero, code.raw));
    }
  }
}

void Fill(Dtype format, ExpandedCodes& codes) {
  const bool narrow = format == Dtype::e4m3;
  codes.decode = narrow ? Decode<3> : Decode<2>;
  codes.encode = narrow ? Encode<3> : Encode<2>;
}

#else

void Fill(Dtype, ExpandedCodes&) {}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {
namespace {

HWY_EXPORT(Fill);

// 2^(log2_value / k)
constexpr float root(double log2_value, int k16) {
  return static_cast<float>(exp2_exact(log2_value * 16 / k16));
}

template <Dtype D>
struct PowerRows {
  PowerRow by_k16[kMaxK16 + 1];
};

template <Dtype D>
constexpr PowerRow make_row(int k16) {
  constexpr FormatRow kRow = format_row(D);
  constexpr Unpacked kTarget = unpack(kRow.amax_target);
  constexpr double kSignificand = kTarget.significand * 0x1p-23;
  constexpr int kFractions = 1 << kRow.fraction_bits, kExponents = 1 << kRow.exponent_bits;
  PowerRow row{};
  for (int i = 0; i < kExponents; ++i) {
    const int exponent = (i == 0 ? 1 : i) - kRow.bias;  // subnormals have the least exponent
    row.exponent[i] = root(exponent - kTarget.exponent, k16);
    if (2 * kExponents <= 32) row.exponent[kExponents + i] = -row.exponent[i];
  }
  for (int i = 0; i < 16; ++i) {
    const double part = static_cast<double>(i % kFractions) / kFractions;
    row.normal[i] = root(log2_exact((1 + part) / kSignificand), k16);
    row.subnormal[i] = i % kFractions == 0 ? 0.0f : root(log2_exact(part / kSignificand), k16);
  }
  const double least = decode<D>(kRow.min_code);
  row.log2_least =
      static_cast<float>(log2_exact(least / static_cast<double>(kRow.amax_target)) * 16 / k16);
  return row;
}

template <Dtype D>
constexpr PowerRows<D> make_rows() {
  PowerRows<D> rows{};
  for (int k16 = 1; k16 <= kMaxK16; ++k16) rows.by_k16[k16] = make_row<D>(k16);
  return rows;
}
template <Dtype D>
constexpr PowerRows<D> kPowerRows = make_rows<D>();

struct Limits {
  int32_t of_cell[32];
};

// (place + of_cell) >> (23 - fraction bits) is the code, place in 2^-23 octaves from the smallest
// value.
template <Dtype D>
constexpr Limits make_limits() {
  constexpr int kFraction = format_row(D).fraction_bits, kPerOctave = 1 << kFraction;
  constexpr double kUnit = double{1 << (23 - kFraction)};
  constexpr int kCells = (kFraction + 1) * kPerOctave;
  Limits limits{};
  for (int cell = 0; cell < kCells; ++cell) {
    // Start of a code, in cells: half a place below it. No limit is needed beyond the first
    // octave of normal numbers, whose places are the subnormals'.
    const auto place_of = [](int code) {
      return (log2_exact(code - 0.5) - kCellOffset) * kPerOctave;
    };
    int code = 1;  // at the cell's start
    while (place_of(code + 1) <= cell) ++code;
    const double next = place_of(code + 1);
    const double limit = next < cell + 1 ? (code + 1 - next) * kUnit : (code - cell) * kUnit;
    limits.of_cell[cell] = static_cast<int32_t>(limit < 0 ? limit - 0.5 : limit + 0.5);
  }
  return limits;
}
template <Dtype D>
constexpr Limits kLimits = make_limits<D>();

template <Dtype D>
ExpandedCodes make_codes() {
  constexpr FormatRow kRow = format_row(D);
  ExpandedCodes codes;
  codes.rows = kPowerRows<D>.by_k16;
  codes.limits = kLimits<D>.of_cell;
  const double least = decode<D>(kRow.min_code);
  codes.log2_top =
      static_cast<float>(log2_exact(static_cast<double>(kRow.amax_target) / least) - kCellOffset);
  HWY_DYNAMIC_DISPATCH(Fill)(D, codes);
  return codes;
}

}  // namespace

ExpandedCodes expanded_codes(Dtype format) {
  if (format == Dtype::e4m3) return make_codes<Dtype::e4m3>();
  if (format == Dtype::e5m2) return make_codes<Dtype::e5m2>();
  return {};
}

}  // namespace octet::cpu
#endif
