// One AdamW step on n elements with moments of any storage: f32, bf16, or 8-bit codes in groups
// with metadata. Source: Loshchilov & Hutter 2019. The equation and its order are math/adamw.h, the
// storage of a moment math/moment.h.
//
// Each group is decoded, updated and encoded while it lies in the first-level cache. With exact
// maths, and without range expansion, every bit equals the scalar formulas; with fast maths the
// powers are vectors of f32, codes agree with the exact ones in at least 99.9 %, the others by one
// code. Bit-identical for any number of threads; NaN and Inf in m or v take the scalar formulas.
// A result may lie where any operand of the same bytes per element lies. Where *skip != 0 every
// result is a copy of its operand.
#pragma once

#include "backends/cpu/common/operand.h"
#include "backends/cpu/elementwise/amax_sink.h"
#include "math/adamw.h"
#include "math/moment.h"

namespace octet::cpu {

enum class WeightStore : uint8_t {
  plain,       // the weight is the master; a narrow one rounds to nearest even
  remainder,   // bf16 and an i16 remainder
  master,      // an f32 master, and the weight rounded to nearest even
  stochastic,  // bf16 alone, rounded stochastically
};

struct MomentPlace {
  MomentCoding coding;
  const void* from = nullptr;  // f32, bf16 bits, or codes
  void* to = nullptr;
  const uint32_t* meta_from = nullptr;  // one word a group, with codes alone
  uint32_t* meta_to = nullptr;
  RandomStream random{};
};

struct AdamWGroups {
  In grad;  // f32, bf16 or fp16, as the weight
  In weight_from;
  Out weight_to;
  WeightStore store = WeightStore::plain;
  const void* master_from = nullptr;  // i16 or f32
  void* master_to = nullptr;
  RandomStream weight_random{};
  MomentPlace m, v;
  int64_t group = 128;  // at most kMaxGroup
  int64_t first = 0;    // the place of element 0 in the parameter, for what is drawn
  const uint8_t* skip = nullptr;
  AmaxSink* amax = nullptr;  // of the weight as it is afterwards, f32 or bf16
};

inline constexpr int64_t kMaxGroup = 1024;

// Throws invalid_argument for a group beyond kMaxGroup.
void adamw_groups(const AdamWGroups& args, const AdamwConstants& constants, int64_t n,
                  ThreadPool& pool);

}  // namespace octet::cpu
