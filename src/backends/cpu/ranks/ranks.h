// Collectives of the CPU: bytes move through a Group, sums are taken here. Equations:
// ir/ops/ranks.cpp.
//
// Sums are in f32, rank by rank (Cut::a_host), rounded once: the same bits for any Isa and number
// of threads.
#pragma once

#include <span>

#include "backends/cpu/common/operand.h"
#include "comm/group.h"
#include "math/exact_sum.h"

namespace octet::cpu {

// One rank's view of a tensor that is cut among them (ir/sharding.h).
struct Cut {
  Group* group = nullptr;  // nullptr: this is the only rank
  int64_t n = 0;           // elements of the whole
  int64_t shard = 0;       // elements of one shard
  int64_t a_host = 0;      // neighbours that sums begin with; 0: none

  int ranks() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
};

// y: n elements of width `bytes`; x: a shard of them, which may lie in its place of y. scratch:
// shards of all ranks where n is no multiple of a shard.
void all_gather(const Cut& cut, int64_t bytes, const std::byte* x, std::byte* y,
                std::byte* scratch);

// Operand of a sum: f32, bf16, fp16, or eight-bit floats times a scale.
struct Summand {
  In x;
  float scale = 1;
};

// y: this rank's shard of into + x of rank 0 + x of rank 1 ..., or with Cut::a_host of into + sums
// of so many of them. `into` may be absent. into and y: f32, bf16 or fp16. scratch: two times the
// shards of all ranks in x's type.
void reduce_scatter(const Cut& cut, const Summand& own, In into, Out y, std::byte* scratch);

// The sum of the squares of n elements (f32, bf16, fp16), of 256 at a time in double.
ExactSum square_sum(In x, int64_t n, ThreadPool& pool);
// That of all ranks.
ExactSum sum_over(Group* group, const ExactSum& own);

// The largest of each of n numbers (f32) or flags (bytes) over the ranks, in place; NaN wins.
void max_over(Group* group, std::span<float> values);
void max_over(Group* group, std::span<uint8_t> flags);

}  // namespace octet::cpu
