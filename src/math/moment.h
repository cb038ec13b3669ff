// Adam's moments as they are stored: f32, bf16, or 8-bit codes in groups of consecutive elements
// with one u32 of metadata each (math/expansion.h says what its bits are).
//
//   expanded       x ~ sign(q) (|q| / target)^(1/k) amax
//   not expanded   x ~ (q / target) amax,  q = encode((x / amax) target): each operation rounded to
//                  f32, the same bits in both maths; the metadata says k = 1 (16k = 16)
// Codes are made with the *stored* metadata. A group of zeros, or with amax < 2^-100: codes and
// metadata 0, decodes to 0. A nonzero v never becomes 0, and with expansion a nonzero m does not
// either: they take the smallest code. NaN stays NaN where the format has one and does not count in
// amax; Inf, a moment that overflowed, counts and is stored as the largest finite value of its
// sign, in f32 and bf16 too, so that it decays again. Stochastic rounding draws between the two
// neighbours in *decoded* values, so that it is unbiased with expansion too (DE8 included); bf16 as
// math/master.h. The amax of a group is cut to 24 bits by drawn bits (AmaxRounding).
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "math/expansion.h"
#include "math/master.h"

namespace octet {

struct MomentCoding {
  Dtype dtype = Dtype::f32;  // f32, bf16, or a format with an expansion ratio
  Moment moment = Moment::first;
  bool expand = false;
  bool stochastic = false;
  MathMode math = MathMode::exact;
};

OCTET_HOST_DEVICE constexpr bool keeps_nonzero(const MomentCoding& coding) {
  return coding.expand || coding.moment == Moment::second;
}

// The words of one group's rounding: its amax draws by `first`, and where codes are stochastic
// element i of the group draws random.bits(first + i).
struct MomentDraw {
  RandomStream random{};
  int64_t first = 0;
};

// How a step cuts the amax of a moment's groups to 24 bits. It is right on average: where codes are
// rounded to nearest they stand while all of a group decays, and amax alone carries the decay, of
// which a place of the 24 bits holds many steps (beta = 0.99999). Rounding up would undo it, to
// nearest would take a whole place a step. Where codes are stochastic amax goes up, since they
// carry the decay, and nothing above amax could be drawn without bias.
struct AmaxRounding {
  uint32_t word = 0;  // of this step
  bool is_up = true;

  // Addend for the group whose first element has this place in the parameter: groups lie a
  // golden section apart.
  OCTET_HOST_DEVICE constexpr uint32_t up(int64_t first) const {
    return is_up ? kAmaxUp : (word + 0x9E3779B9u * static_cast<uint32_t>(first)) >> 25;
  }
};
// random: of the moment's words. The block behind those of all elements is amax's.
OCTET_HOST_DEVICE inline AmaxRounding amax_rounding(const MomentCoding& coding,
                                                    const RandomStream& random) {
  if (coding.stochastic) return {};
  return {.word = random.block(~uint64_t{0}).word[0], .is_up = false};
}

// 16k of a group that is not expanded.
inline constexpr uint32_t kPlainK16 = 16;

// Stored value of a moment: in place of Inf the largest finite value of its sign.
OCTET_HOST_DEVICE constexpr float stored_moment(float x) {
  return (bits_of(x) & kF32Magnitude) == kF32Inf ? float_of(bits_of(x) - 1u) : x;
}

// Value kept of m where v overflowed and neither is in codes: at most the root of what is stored
// of v, so that later steps of the element are no longer than those of others.
OCTET_HOST_DEVICE constexpr float first_beside(float m, float v) {
  constexpr float kRoot = 0x1p64f;
  if ((bits_of(v) & kF32Magnitude) != kF32Inf) return m;
  return m > kRoot ? kRoot : m < -kRoot ? -kRoot : m;
}

// By which k is chosen: the smallest magnitude counts as 2^-13 more, which its code does not see.
// The element with the smallest code gives back the very range for which k was chosen; what
// rounding adds to it would lower k, and with it the element, in every step.
OCTET_HOST_DEVICE constexpr AbsRange moment_range(const AbsRange& range) {
  const float amin = range.amin * (1.0f + 0x1p-13f);
  return {range.amax, amin < range.amax ? amin : range.amax, range.nonfinite};
}

// The metadata of a group with this range; up: AmaxRounding's.
uint32_t moment_meta(const MomentCoding& coding, const AbsRange& range, uint32_t up = kAmaxUp);

// The values to encode: sign(x) (|x|/amax)^k target, smallest code where zero is not allowed.
// meta is not 0; y may be x.
void moment_scale(const MomentCoding& coding, uint32_t meta, std::span<const float> x,
                  std::span<float> y);

// One group: codes to values and back. encode_moments also writes the metadata.
void decode_moments(const MomentCoding& coding, uint32_t meta, std::span<const uint8_t> codes,
                    std::span<float> x);
void encode_moments(const MomentCoding& coding, std::span<const float> x, const MomentDraw& draw,
                    std::span<uint8_t> codes, uint32_t& meta);
// The same with metadata that is given.
void encode_with_meta(const MomentCoding& coding, uint32_t meta, std::span<const float> x,
                      const MomentDraw& draw, std::span<uint8_t> codes);

// A whole tensor in groups of `group` consecutive elements, the last of which may be shorter; meta
// holds expand_groups(n, group) words.
void decode_groups(const MomentCoding& coding, int64_t group, std::span<const uint32_t> meta,
                   std::span<const uint8_t> codes, std::span<float> x);

// One value as bf16: nearest even, or stochastic; the largest finite one of its sign for Inf.
OCTET_HOST_DEVICE constexpr uint16_t moment_bf16(const MomentCoding& coding, float x,
                                                 uint32_t random) {
  const uint16_t code = coding.stochastic ? stochastic_bf16(x, random) : bf16_from_f32(x);
  if ((code & 0x7FFFu) == 0x7F80u) return static_cast<uint16_t>(code - 1u);
  return code == 0 && x > 0 && coding.moment == Moment::second ? uint16_t{1} : code;
}

}  // namespace octet
