// Proof of ranks to each other before they train: that each collective of their plans, on this
// machine and between these devices, gives the results of the CPU's kernels.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/group.h"
#include "runtime/collective_trial.h"

namespace octet {

struct SelfTestResult {
  int n_kernels = 0;
  double ms = 0;
};

// "[ranks] self-test: reduce_scatter bf16 -> bf16, rank 1, element 7: expected 12, got 0 (...)", in
// every rank, where a rank has found a mismatch; the lowest rank's. Throws Error{device}.
void expect_no_mismatch(Group& group, const CollectiveKind& kind, const Mismatch& own);

class RankSelfTest {
 public:
  // Plans the trials: of sizes 1, 255, 256 D + 13, and one of about 1 MiB.
  RankSelfTest(const CollectiveKinds& kinds, Group& group, const Catalogue& catalogue);
  // Raises them to what the trials need.
  void raise(int64_t (&arena_bytes)[kArenaCount]) const;
  // Every rank calls it, with arenas that are connected and hold nothing yet. Each trial is
  // launched twice and replayed twice from a captured graph. Throws Error{device} in all ranks: a
  // wrong result, or a rank for which the others wait longer than `patience`.
  SelfTestResult run(Catalogue& catalogue, Arenas& arenas,
                     std::chrono::milliseconds patience = std::chrono::seconds(20));

 private:
  Mismatch run_one(CollectiveTrial& trial, Arenas& arenas, std::chrono::milliseconds patience);

  Group& group_;
  std::vector<std::unique_ptr<CollectiveTrial>> trials_;
};

}  // namespace octet
