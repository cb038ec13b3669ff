// Which of adamw_step's rows takes what; each leaves an end that fills no tile to the next ones.
#pragma once

#include "backends/cuda/params/update.h"

namespace octet::cuda {

inline constexpr int64_t kMomentGroup = 128;  // codes with one scale, as fast kernels read them
inline constexpr int64_t kGroupPair = 256;    // elements that a warp of `groups` takes
inline constexpr int64_t kWideRun = 4;        // consecutive elements of a thread of `wide`

constexpr bool fast_weight(const AdamwParams& p) {
  const bool weight = p.store == WeightStore::plain ? p.w == Dtype::f32 : p.w == Dtype::bf16;
  return weight && (p.g == Dtype::bf16 || p.g == Dtype::f32);
}
// Both moments expanded E4M3.
constexpr bool takes_expanded(const AdamwParams& p) {
  const auto expanded = [](const MomentParams& moment) {
    return moment.dtype == Dtype::e4m3 && moment.expand && !moment.stochastic;
  };
  return expanded(p.m) && expanded(p.v) && !p.exact && p.group == kMomentGroup && fast_weight(p);
}
// E4M3 or E5M2; the second also f32 or scaled FP16, whose blocks of words have four elements.
constexpr bool takes_groups(const AdamwParams& p) {
  const auto is_code = [](Dtype dtype) { return dtype == Dtype::e4m3 || dtype == Dtype::e5m2; };
  const bool powers = p.m.expand || p.v.expand;
  const bool takes_v = is_code(p.v.dtype) || p.v.dtype == Dtype::f32 ||
                       (p.v.dtype == Dtype::fp16 && p.first % 4 == 0);
  const bool draws = p.m.stochastic || (p.v.stochastic && p.v.dtype != Dtype::fp16);
  return p.group == kMomentGroup && is_code(p.m.dtype) && takes_v && !draws &&
         !(powers && p.exact) && fast_weight(p);
}
constexpr bool takes_wide(const AdamwParams& p) {
  const auto wide = [](Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16; };
  return wide(p.m.dtype) && wide(p.v.dtype);
}

}  // namespace octet::cuda
