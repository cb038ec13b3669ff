// Codes of one group under dynamic range expansion (math/expansion.h) for formats with an exponent
// and a fraction, without a logarithm or power per element; fast maths.
//
//   decode   x = E[sign, exponent] F[fraction],  E F = sign (|q| / target)^(1/k) amax: two tables
//            that depend on k alone; relative error below 2e-7
//   encode   by log2(|x| / amax) k, whose piecewise linear part are the bits of x themselves: the
//            limits between codes stand in a table of cells with one limit at most, so that an
//            addition and a shift give the code; log2 within 4e-6, limits exact
// Nothing nonzero becomes 0. Only on targets with registers of 16 floats.
#pragma once

#include <span>

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

// (|q| / target)^(1/k) of a format for one k.
struct PowerRow {
  float exponent[32];   // e4m3: by sign and exponent; e5m2: by exponent
  float normal[16];     // by the lower four bits of the code
  float subnormal[16];  // the same
  float log2_least;     // of the smallest code
};

// One group; its metadata is not 0.
struct DecodeJob {
  uint32_t meta;
  const uint8_t* codes;
  float* x;
};
struct EncodeJob {
  uint32_t meta;
  const float* x;  // 0 or normal, at most a place of the metadata above the stored amax
  uint8_t* codes;
};

struct ExpandedCodes {
  const PowerRow* rows = nullptr;   // by 16k
  const int32_t* limits = nullptr;  // 32 cells
  float log2_top = 0;  // log2(target / smallest positive value), less the cells' offset
  // Groups of n elements, n a multiple of 16.
  void (*decode)(const ExpandedCodes& codes, std::span<const DecodeJob> jobs, int64_t n) = nullptr;
  void (*encode)(const ExpandedCodes& codes, std::span<const EncodeJob> jobs, int64_t n) = nullptr;
};

// Null functions where the format or the target that the process allows now has none.
ExpandedCodes expanded_codes(Dtype format);

}  // namespace octet::cpu
