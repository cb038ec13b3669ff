// The vector loops of adamw_groups: all work on f32 buffers padded with zeros to whole vectors, n
// being a multiple of every vector's length (kPad).
#pragma once

#include <cstdint>

#include "backends/cpu/operand.h"
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

// decode: x = sign(q) 2^(log2_ratio[code] inv_k) amax; ratio[code] = q / target gives sign and
// zero.
struct DecodeTable {
  float ratio[256], log2_ratio[256];
};
struct Contraction {
  float inv_k, amax;
};
// encode: y = sign(x) max(2^(k log2(|x| / amax)) target, least), 0 for x = 0.
struct ExpansionOf {
  float k, amax, target, least;
};

struct AdamwVectors {
  void (*widen)(const uint16_t* bf16, int64_t n, float* x);
  void (*narrow)(const float* x, int64_t n, uint16_t* bf16);
  void (*narrow_stochastic)(const float* x, const uint32_t* random, int64_t n, uint16_t* bf16);
  void (*join)(const uint16_t* hi, const int16_t* lo, int64_t n, float* x);
  void (*split)(const float* x, int64_t n, uint16_t* hi, int16_t* lo);
  void (*decode_plain)(const DecodeTable& table, float amax, const uint8_t* codes, int64_t n,
                       float* x);
  void (*decode_expanded)(const DecodeTable& table, const Contraction& c, const uint8_t* codes,
                          int64_t n, float* x);
  void (*scale_plain)(const ExpansionOf& e, const float* x, int64_t n, float* y);
  void (*scale_expanded)(const ExpansionOf& e, const float* x, int64_t n, float* y);
  // w, m, v in place.
  BitRanges (*update)(const AdamwConstants& k, const float* g, int64_t n, float* wmv[3]);
  // Words of elements first to first + n; first is a multiple of 4.
  void (*random)(const RandomStream& stream, int64_t first, int64_t n, uint32_t* words);
};

// Those of the best target that the process allows now.
AdamwVectors adamw_vectors();

}  // namespace octet::cpu
