// States of weights as f32 and back: f32, bf16, bf16 with the i16 remainder of an f32 master, and
// 8-bit data in groups with u32 metadata (math/moment.h, math/master.h). The bits are those of the
// scalar formulas there, for any Isa and any number of threads.
#pragma once

#include "backends/cpu/common/operand.h"
#include "math/moment.h"

namespace octet::cpu {

struct StateCoding {
  MomentCoding coding;  // coding.dtype: f32, bf16 or a format with metadata
  int64_t group = 1;    // of 8-bit data
  RandomStream random{};
  int64_t first = 0;  // the place of element 0 in the parameter, for what is drawn
};

// Stored data, and beside it the remainder or the metadata, nullptr where there is none.
template <typename Void>
struct StoredState {
  Void* data = nullptr;
  Void* rest = nullptr;
};
void load_state(const StateCoding& state, StoredState<const void> from, float* y, int64_t n,
                ThreadPool& pool);
void store_state(const StateCoding& state, const float* x, StoredState<void> to, int64_t n,
                 ThreadPool& pool);

}  // namespace octet::cpu
