// The vector loops of adamw_groups: all work on f32 buffers padded with zeros to whole vectors, n
// being a multiple of every vector's length (kPad).
#pragma once

#include <cstdint>

#include "backends/cpu/common/operand.h"
#include "math/adamw.h"

namespace octet::cpu {

inline constexpr int64_t kPad = 64;

// Bits of the largest magnitude, and of the smallest that is not zero (kF32Inf where all are zero).
// NaN and Inf show as amax >= kF32Inf.
struct BitRange {
  uint32_t amax = 0, amin = 0;
};
struct BitRanges {
  BitRange m, v;
};

// Decoded values of codes, relative to the target: ratio = q / target, and for expanded groups
// log2(|q| / target) = whole + part, whole an integer. The lowest bit of part is the sign of q, and
// q = 0 has whole = kNoPower. Of IEEE formats, part stands once more by the fraction's bits, 0 to 7
// of normal numbers and 8 to 15 of subnormals, whole being the exponent's bits minus
// exponent_offset.
inline constexpr float kNoPower = -4096.0f;
struct DecodeTable {
  float ratio[256], whole[256], part[256];
  float part_of_fraction[16];   // of log2
  float ratio_of_fraction[16];  // 2^part, rounded so that times 2^whole it is ratio
  int fraction_bits = 0;        // 0: no IEEE format
  int exponent_offset = 0;
};
// decode: x = sign(q) 2^((whole + part) / k) amax, with 1 / k = inv_hi + inv_lo, inv_hi of 12 bits.
struct Contraction {
  float inv_hi, inv_lo, amax;
};
// encode: y = sign(x) max(2^(k log2(|x| / amax)) target, least), 0 for x = 0.
struct ExpansionOf {
  float k, amax, target, least;
};

// Operands and results of a span's update: the gradient in f32 or bf16, the weight in f32 or,
// where w is null, as bf16 and remainder, or where lo is null too as bf16 that is rounded
// stochastically by the words of elements first_word onwards, a multiple of 4 (math/master.h). A
// result may be its operand.
struct UpdateSpan {
  In grad;
  const float* w = nullptr;
  float* w_to = nullptr;
  const uint16_t* hi = nullptr;
  uint16_t* hi_to = nullptr;
  const int16_t* lo = nullptr;
  int16_t* lo_to = nullptr;
  const RandomStream* random = nullptr;
  int64_t first_word = 0;
  bool multiply = false;  // instead of dividing by c1 and c2: the same bits
  const float *m = nullptr, *v = nullptr;
  float *m_to = nullptr, *v_to = nullptr;
  int64_t group = 0;  // elements of which each gets a BitRanges
};

struct AdamwVectors {
  void (*narrow_stochastic)(const float* x, const uint32_t* random, int64_t n, uint16_t* bf16);
  void (*decode_plain)(const DecodeTable& table, float amax, const uint8_t* codes, int64_t n,
                       float* x);
  void (*decode_expanded)(const DecodeTable& table, const Contraction& c, const uint8_t* codes,
                          int64_t n, float* x);
  void (*scale_plain)(const ExpansionOf& e, const float* x, int64_t n, float* y);
  void (*scale_expanded)(const ExpansionOf& e, const float* x, int64_t n, float* y);
  // n elements in groups of `group`, whose ranges are written one after another; ranges nullptr:
  // moments that stay f32, finite as math/moment.h stores them.
  void (*update)(const AdamwConstants& k, const UpdateSpan& span, int64_t n, BitRanges* ranges);
  // Words of elements first to first + n; first is a multiple of 4.
  void (*random)(const RandomStream& stream, int64_t first, int64_t n, uint32_t* words);
};

// AdamwVectors of the best target that the process allows now.
AdamwVectors adamw_vectors();

}  // namespace octet::cpu
