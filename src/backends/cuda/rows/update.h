// Which of adamw_step's rows takes what; each leaves an end that fills no tile to the next ones.
// Read by the plan, and by the module for tensors that have none (module/adamw_many.cpp).
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

// is_aligned: whether every address allows accesses of 16 bytes. Those of a plan do.
constexpr AdamwPieces adamw_pieces(const AdamwParams& p, bool is_aligned) {
  AdamwPieces pieces;
  int64_t begin = 0;
  const auto add = [&](AdamwRow row, bool takes, int64_t tile) {
    if (row < p.row || !takes || p.n - begin < tile) return;
    const int64_t end = begin + (p.n - begin) / tile * tile;
    pieces.all[pieces.n++] = {.begin = begin, .end = end, .row = row};
    begin = end;
  };
  add(AdamwRow::expanded, is_aligned && takes_expanded(p), kMomentGroup);
  add(AdamwRow::groups, is_aligned && takes_groups(p), kGroupPair);
  add(AdamwRow::wide, is_aligned && takes_wide(p), kWideRun);
  add(AdamwRow::generic, true, 1);
  return pieces;
}

}  // namespace octet::cuda
