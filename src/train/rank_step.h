// The one message of a step that the ranks of a run send each other: the losses, and what must be
// the same on all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "data/rows.h"

namespace octet {

// The step of one rank.
struct RankStep {
  std::vector<float> losses;  // of its micro-batches, as many on every rank
  float grad_norm = 0;        // of all gradients, like what follows
  bool nonfinite = false;
  uint32_t attempt = 0;
  std::vector<std::string> skipped_tensors = {};
  uint64_t rows = 0;  // a hash of the rows that this rank read
};

struct CommonStep {
  double loss = 0;
  // Finite, and of all ranks the same to the bit, though their rows are not the same.
  bool equal_losses = false;
};

// The sum in the order of the step's micro-batches: the i-th of rank r is the (i D + r)-th.
double sum_over_ranks(Group* group, const std::vector<float>& losses);

// nullptr: there is one rank. Throws Error{numerics}, on all ranks, where gradient norm, flags or
// attempt differ, naming the ranks that have others than most.
CommonStep gather_step(Group* group, const RankStep& own);

// The hash of the rows before and these.
uint64_t hash_of_rows(uint64_t before, const Batch& batch);

}  // namespace octet
