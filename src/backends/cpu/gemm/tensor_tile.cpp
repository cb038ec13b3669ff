#include "backends/cpu/gemm/tensor_tile.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm/tensor_tile.cpp"
#include "backends/cpu/common/simd_targets.h"
// After the list of targets.
#include <hwy/foreach_target.h>

#include "backends/cpu/common/simd_math-inl.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR

using D16 = hn::Repartition<uint16_t, F32>;
using D8 = hn::Repartition<uint8_t, F32>;
using S8 = hn::Repartition<int8_t, F32>;
using S16 = hn::Repartition<int16_t, F32>;
using V16 = hn::Vec<D16>;
using VI = hn::Vec<I32>;

HWY_INLINE VI exponent_of(VF x) {
  const VI bits = hn::BitCast(I32(), x);
  return hn::Sub(hn::And(hn::ShiftRight<23>(bits), hn::Set(I32(), 255)), hn::Set(I32(), 127));
}

// Two neighbours along k in each lane of 32 bits, exponents twice in their 16. A term is
// floor(|s_a s_b| 2^7 / 2^d), d the distance to the largest exponent: the upper half of
// (|s_a s_b| 2^8) 2^(15 - d), whose power is looked up byte by byte.
struct Fp8Lanes {
  static constexpr int64_t kPairs = 16;
  const V16 flip = hn::Set(D16(), uint16_t{8});
  const hn::Vec<S8> deepest = hn::Set(S8(), int8_t{15});
  hn::Vec<D8> powers, low_bytes;

  Fp8Lanes() {
    alignas(64) static constexpr uint8_t kPowers[16] = {128, 64, 32, 16, 8, 4, 2, 1};
    alignas(64) static constexpr uint8_t kLow[16] = {0, 0, 0, 0, 4,  4,  4,  4,
                                                     8, 8, 8, 8, 12, 12, 12, 12};
    powers = hn::LoadDup128(D8(), kPowers);
    low_bytes = hn::LoadDup128(D8(), kLow);
  }

  static HWY_INLINE V16 pair(const uint16_t* a) {
    uint32_t both;
    std::memcpy(&both, a, sizeof(both));
    return hn::BitCast(D16(), hn::Set(U32(), both));
  }
  // e, magnitude and sign of b's pair: [pairs][columns][2] each, from this lane's first column.
  HWY_INLINE VF add(const uint16_t* a, const uint16_t* b, VF c) const {
    constexpr int64_t kPlaneA = 2 * kPairs, kPlaneB = kPlaneA * kTensorColumns;
    constexpr int64_t kStep = 2 * kTensorColumns;
    const auto exponents = [&](int64_t p) HWY_ATTR {
      return hn::Add(hn::BitCast(S8(), pair(a + 2 * p)),
                     hn::BitCast(S8(), hn::LoadU(D16(), b + p * kStep)));
    };
    auto most = exponents(0);
    for (int64_t p = 1; p < kPairs; ++p) most = hn::Max(most, exponents(p));
    const VI both = hn::BitCast(I32(), most);
    const auto extended = [](VI x) HWY_ATTR { return hn::ShiftRight<24>(x); };
    const VI of_products = hn::Max(extended(both), extended(hn::ShiftLeft<16>(both)));
    const VI largest = hn::Max(hn::Max(of_products, exponent_of(c)), hn::Set(I32(), -100));
    const auto largest_bytes =
        hn::BitCast(S8(), hn::TableLookupBytes(hn::BitCast(D8(), largest), low_bytes));
    VI sum = hn::Zero(I32()), rest = hn::Zero(I32());
    for (int64_t p = 0; p < kPairs; ++p) {
      const auto depth = hn::Min(hn::SaturatedSub(largest_bytes, exponents(p)), deepest);
      const V16 index = hn::Xor(hn::BitCast(D16(), depth), flip);
      const V16 shift = hn::BitCast(D16(), hn::TableLookupBytes(powers, hn::BitCast(D8(), index)));
      const V16 product =
          hn::Mul(pair(a + kPlaneA + 2 * p), hn::LoadU(D16(), b + kPlaneB + p * kStep));
      const V16 term = hn::MulHigh(product, shift);
      const auto sign = hn::Mul(hn::BitCast(S16(), pair(a + 2 * kPlaneA + 2 * p)),
                                hn::BitCast(S16(), hn::LoadU(D16(), b + 2 * kPlaneB + p * kStep)));
      sum = hn::ReorderWidenMulAccumulate(I32(), hn::BitCast(S16(), term), sign, sum, rest);
    }
    sum = hn::Add(sum, rest);
    const VI thirteen = hn::Set(I32(), 13);
    sum = hn::Add(sum, hn::ConvertTo(I32(), hn::Mul(c, power_of_two(hn::Sub(thirteen, largest)))));
    // 13 bits behind the leading one of the 23 that f32 has.
    const VF exact = hn::ConvertTo(F32(), sum);
    const VF cut = hn::And(exact, hn::BitCast(F32(), hn::Set(U32(), 0xFFFFFC00u)));
    return hn::Mul(cut, power_of_two(hn::Sub(largest, thirteen)));
  }
};

// Lanes of 32 bits, one product each. A sum of 16 terms below 2^27 fits them; with the running sum
// it is added in f64, whose upper bits are f32's towards zero.
struct HalfLanes {
  static constexpr int64_t kDepth = 16;
  using F64 = hn::Repartition<double, F32>;
  using I64 = hn::Repartition<int64_t, F32>;
  using Half = hn::Half<I32>;
  using VD = hn::Vec<F64>;
  int shift = 11;  // 25 less twice the factors' bits

  static HWY_INLINE VD power64(VI e, bool upper) {
    const auto half = upper ? hn::UpperHalf(Half(), e) : hn::LowerHalf(Half(), e);
    const auto wide = hn::PromoteTo(I64(), half);
    return hn::BitCast(F64(), hn::ShiftLeft<52>(hn::Add(wide, hn::Set(I64(), 1023))));
  }
  // Half of the new sums.
  HWY_INLINE auto finish(VI sum, VI largest, VF c, bool upper) const {
    const hn::Half<F32> df;
    const VI bits = hn::Set(I32(), 25);
    const auto c_half = upper ? hn::UpperHalf(df, c) : hn::LowerHalf(df, c);
    const auto sum_half = upper ? hn::UpperHalf(Half(), sum) : hn::LowerHalf(Half(), sum);
    const VD own = hn::Mul(hn::PromoteTo(F64(), c_half), power64(hn::Sub(bits, largest), upper));
    const VD total = hn::Add(hn::PromoteTo(F64(), sum_half), hn::Trunc(own));
    const VD cut = hn::And(total, hn::BitCast(F64(), hn::Set(I64(), ~((int64_t{1} << 29) - 1))));
    return hn::DemoteTo(df, hn::Mul(cut, power64(hn::Sub(largest, bits), upper)));
  }
  HWY_INLINE VF add(const int32_t* a, const int32_t* b, VF c, VI* largest_of) const {
    constexpr int64_t kPlaneB = kDepth * kTensorColumns;
    const auto exponents = [&](int64_t k) HWY_ATTR {
      return hn::Add(hn::Set(I32(), a[k]), hn::LoadU(I32(), b + k * kTensorColumns));
    };
    VI most = exponents(0);
    for (int64_t k = 1; k < kDepth; ++k) most = hn::Max(most, exponents(k));
    const VI largest = hn::Max(hn::Max(most, exponent_of(c)), hn::Set(I32(), kLowestLargest));
    const VI deepest = hn::Set(I32(), 31);
    VI sum = hn::Zero(I32());
    for (int64_t k = 0; k < kDepth; ++k) {
      const VI depth = hn::Min(hn::Sub(largest, exponents(k)), deepest);
      const VI product = hn::Mul(hn::Set(I32(), a[kDepth + k] << shift),
                                 hn::LoadU(I32(), b + kPlaneB + k * kTensorColumns));
      const VI term =
          hn::BitCast(I32(), hn::Shr(hn::BitCast(U32(), product), hn::BitCast(U32(), depth)));
      // Signs are 0 or -1.
      const VI sign = hn::Xor(hn::Set(I32(), a[2 * kDepth + k]),
                              hn::LoadU(I32(), b + 2 * kPlaneB + k * kTensorColumns));
      sum = hn::Add(sum, hn::Sub(hn::Xor(term, sign), sign));
    }
    *largest_of = largest;
    return hn::Combine(F32(), finish(sum, largest, c, true), finish(sum, largest, c, false));
  }
};

void AddFp8(const TensorTile& t) {
  const Fp8Lanes lanes;
  constexpr int64_t kBlock = 2 * Fp8Lanes::kPairs * 3;  // of a row of a, in u16
  const auto width = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t block = 0; block < t.n_blocks; ++block) {
    const auto* const b = static_cast<const uint16_t*>(t.b) + block * kBlock * kTensorColumns;
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto* const a =
          reinterpret_cast<const uint16_t*>(static_cast<const char*>(t.a) + r * t.a_stride) +
          block * kBlock;
      float* const sums = t.sums + r * kTensorColumns;
      for (int64_t j = 0; j < kTensorColumns; j += width)
        hn::StoreU(lanes.add(a, b + 2 * j, hn::LoadU(F32(), sums + j)), F32(), sums + j);
    }
  }
}

// Values that f32 has no normal number for are made by the rule itself.
HWY_NOINLINE void add_slowly(const TensorTile& t, const int32_t* a, const int32_t* b, float* sums,
                             int64_t n) {
  constexpr int64_t kDepth = HalfLanes::kDepth, kPlaneB = kDepth * kTensorColumns;
  for (int64_t j = 0; j < n; ++j) {
    SumFactor row[kDepth], col[kDepth];
    for (int64_t k = 0; k < kDepth; ++k) {
      const int64_t at = k * kTensorColumns + j;
      row[k] = {(a[kDepth + k] ^ a[2 * kDepth + k]) - a[2 * kDepth + k], a[k]};
      col[k] = {(b[kPlaneB + at] ^ b[2 * kPlaneB + at]) - b[2 * kPlaneB + at], b[at]};
    }
    sums[j] = add_block(*t.rule, row, col, kDepth, sums[j]);
  }
}

void AddHalves(const TensorTile& t) {
  const HalfLanes lanes{.shift = t.rule->fraction - 2 * t.rule->fraction_of_factors};
  constexpr int64_t kBlock = HalfLanes::kDepth * 3;
  const auto width = static_cast<int64_t>(hn::Lanes(F32()));
  const VI low = hn::Set(I32(), -126 + 25), high = hn::Set(I32(), 120);
  for (int64_t block = 0; block < t.n_blocks; ++block) {
    const auto* const b = static_cast<const int32_t*>(t.b) + block * kBlock * kTensorColumns;
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto* const a =
          reinterpret_cast<const int32_t*>(static_cast<const char*>(t.a) + r * t.a_stride) +
          block * kBlock;
      float* const sums = t.sums + r * kTensorColumns;
      for (int64_t j = 0; j < kTensorColumns; j += width) {
        VI largest;
        const VF y = lanes.add(a, b + j, hn::LoadU(F32(), sums + j), &largest);
        const auto is_far = hn::Or(hn::Lt(largest, low), hn::Gt(largest, high));
        if (hn::AllFalse(I32(), is_far)) {
          hn::StoreU(y, F32(), sums + j);
        } else {
          add_slowly(t, a, b + j, sums + j, width);
        }
      }
    }
  }
}

void AddTensorBlocks(const TensorTile& t) {
  tensor_packing(*t.rule) == TensorPacking::bytes ? AddFp8(t) : AddHalves(t);
}

#else

void AddTensorBlocks(const TensorTile&) {
  CHECK(false);  // the caller asks for plain tiles
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octet::cpu {
namespace {

// Exponents of zeros: their products never have the largest exponent.
constexpr int kZeroExponent = -60, kZeroHalfExponent = -1000;

}  // namespace

HWY_EXPORT(AddTensorBlocks);

namespace {

SumFactor unpacked(const TensorSums& rule, PackedSide side, const void* block, int64_t outer,
                   int64_t k) {
  const int64_t plane = plane_elems(rule, side), at = packed_index(rule, side, outer, k);
  if (tensor_packing(rule) == TensorPacking::bytes) {
    const auto* const words = static_cast<const uint16_t*>(block) + at;
    const int magnitude = words[plane] >> (side == PackedSide::b ? 8 : 0);
    return {static_cast<int16_t>(words[2 * plane]) * magnitude,
            static_cast<int8_t>(words[0] & 0xFF)};
  }
  const auto* const words = static_cast<const int32_t*>(block) + at;
  const int32_t sign = words[2 * plane];
  return {(words[plane] ^ sign) - sign, words[0]};
}

void add_plainly(const TensorTile& t) {
  constexpr int64_t kMaxBlock = 32;
  const int64_t a_bytes = packed_block_bytes(*t.rule, PackedSide::a);
  const int64_t b_bytes = packed_block_bytes(*t.rule, PackedSide::b);
  const int n = t.rule->block;
  for (int64_t block = 0; block < t.n_blocks; ++block) {
    const auto* const b = static_cast<const char*>(t.b) + block * b_bytes;
    SumFactor cols[kTensorColumns][kMaxBlock];
    for (int64_t j = 0; j < kTensorColumns; ++j) {
      for (int k = 0; k < n; ++k) cols[j][k] = unpacked(*t.rule, PackedSide::b, b, j, k);
    }
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto* const a = static_cast<const char*>(t.a) + r * t.a_stride + block * a_bytes;
      SumFactor row[kMaxBlock];
      for (int k = 0; k < n; ++k) row[k] = unpacked(*t.rule, PackedSide::a, a, 0, k);
      float* const sums = t.sums + r * kTensorColumns;
      for (int64_t j = 0; j < kTensorColumns; ++j)
        sums[j] = add_block(*t.rule, row, cols[j], n, sums[j]);
    }
  }
}

}  // namespace

PackedWords packed_words(const TensorSums& rule, PackedSide side, SumFactor value) {
  const bool is_zero = value.significand == 0, is_negative = value.significand < 0;
  const int32_t magnitude = is_negative ? -value.significand : value.significand;
  if (tensor_packing(rule) == TensorPacking::halves)
    return {is_zero ? kZeroHalfExponent : value.exponent, magnitude, is_negative ? -1 : 0};
  const auto e = static_cast<uint8_t>(is_zero ? kZeroExponent : value.exponent);
  return {e | e << 8, side == PackedSide::b ? magnitude << 8 : magnitude, is_negative ? -1 : 1};
}

void add_tensor_blocks(const TensorTile& tile) {
  tile.plain ? add_plainly(tile) : HWY_DYNAMIC_DISPATCH(AddTensorBlocks)(tile);
}

}  // namespace octet::cpu
#endif
