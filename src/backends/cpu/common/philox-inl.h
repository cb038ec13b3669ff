// Philox in vectors, compiled once for each Highway target: the words of base/philox.h, bit for
// bit.
#if defined(OCTET_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTET_CPU_PHILOX_INL_H_
#undef OCTET_CPU_PHILOX_INL_H_
#else
#define OCTET_CPU_PHILOX_INL_H_
#endif

#include "backends/cpu/common/simd-inl.h"
#include "base/philox.h"

HWY_BEFORE_NAMESPACE();
namespace octet::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kWordsAtOnce = 64;

// The words of kWordsAtOnce elements at a time.
class Words {
 public:
  explicit Words(const RandomStream& stream) : stream_(stream) {
    constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
    auto key0 = static_cast<uint32_t>(stream.name) ^ stream.seed;
    auto key1 = static_cast<uint32_t>(stream.name >> 32);
    for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
      keys_[round][0] = key0;
      keys_[round][1] = key1;
    }
  }
  // Words of elements first to first + kWordsAtOnce; first is a multiple of 4.
  HWY_INLINE void operator()(uint64_t first, uint32_t* words) const {
#if HWY_TARGET == HWY_SCALAR
    for (uint64_t i = 0; i < kWordsAtOnce; ++i) words[i] = stream_.bits(first + i);
#else
    const int64_t blocks = static_cast<int64_t>(hn::Lanes(W()));
    for (int64_t i = 0; i < kWordsAtOnce; i += 8 * blocks) {
      draw((first + static_cast<uint64_t>(i)) / 4, words + i);
    }
#endif
  }

 private:
  static constexpr int kRounds = 10;
  RandomStream stream_;
  uint64_t keys_[kRounds][2];

#if HWY_TARGET != HWY_SCALAR
  using W = hn::Repartition<uint64_t, U32>;
  using VW = hn::Vec<W>;

  // The product of the lower halves; the upper half of m is 0.
  static HWY_INLINE VW product(VW m, VW x) {
    return hn::MulEven(hn::BitCast(U32(), m), hn::BitCast(U32(), x));
  }
  static HWY_INLINE VW xor3(VW a, VW b, VW c) {
#if HWY_TARGET <= HWY_AVX3
    return VW{_mm512_ternarylogic_epi64(a.raw, b.raw, c.raw, 0x96)};
#else
    return hn::Xor(hn::Xor(a, b), c);
#endif
  }
  // A block in each lane, of which the lower half alone counts, and two registers side by side: one
  // would wait for its products.
  HWY_INLINE void draw(uint64_t block, uint32_t* words) const {
    const W d;
    const auto n = static_cast<int64_t>(hn::Lanes(d));
    const VW mul0 = hn::Set(d, 0xD2511F53u), mul1 = hn::Set(d, 0xCD9E8D57u);
    // Block of each lane: a pair of lanes has one block of the first half and one of the second,
    // which stand in order once they are interleaved.
    const VW lane = hn::Iota(d, 0);
    const VW odd = hn::And(lane, hn::Set(d, 1));
    const VW order =
        hn::Add(hn::ShiftRight<1>(lane),
                hn::MulEven(hn::BitCast(U32(), odd), hn::Set(U32(), static_cast<uint32_t>(n / 2))));
    VW c0[2], c1[2], c2[2], c3[2];
    HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
      c0[i] = hn::Add(hn::Set(d, block + static_cast<uint64_t>(i * n)), order);
      c1[i] = hn::ShiftRight<32>(c0[i]);
      c2[i] = hn::Set(d, stream_.step);
      c3[i] = hn::Set(d, stream_.micro_batch);
    }
    for (const auto& key : keys_) {
      const VW key0 = hn::Set(d, key[0]), key1 = hn::Set(d, key[1]);
      HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
        const VW p0 = product(mul0, c0[i]), p1 = product(mul1, c2[i]);
        c0[i] = xor3(hn::ShiftRight<32>(p1), c1[i], key0);
        c2[i] = xor3(hn::ShiftRight<32>(p0), c3[i], key1);
        c1[i] = p1;
        c3[i] = p0;
      }
    }
    HWY_UNROLL(2) for (int i = 0; i < 2; ++i) {
      const VW a = join(c0[i], c1[i]), b = join(c2[i], c3[i]);
      uint32_t* const to = words + 4 * i * n;
      hn::StoreU(hn::BitCast(U32(), hn::InterleaveLower(d, a, b)), U32(), to);
      hn::StoreU(hn::BitCast(U32(), hn::InterleaveUpper(d, a, b)), U32(), to + 2 * n);
    }
  }
  // The lower halves of both.
  static HWY_INLINE VW join(VW low, VW high) {
    return hn::Or(hn::And(low, hn::Set(W(), 0xFFFFFFFFu)), hn::ShiftLeft<32>(high));
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace octet::cpu
HWY_AFTER_NAMESPACE();

#endif  // OCTET_CPU_PHILOX_INL_H_
