// One collective of a back end on known numbers: planned, prepared and launched as those of a
// training step are, and its results compared with what the CPU's kernels make of the same numbers.
#pragma once

#include <compare>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet {

// A kernel between ranks. sharded_norm: x is its gradients' type.
struct CollectiveKind {
  OpCode op = OpCode::all_gather;
  RankReduction reduction = RankReduction::sum;
  Dtype x = Dtype::f32, y = Dtype::f32;
  bool has_into = false;
  bool in_place = false;     // all_gather, where shards are of one length (plan/updates.h)
  bool squares = false;      // reduce_scatter, with the norm of its results
  int64_t ranks_a_host = 0;  // of a sum (CollectiveAttrs)
  auto operator<=>(const CollectiveKind&) const = default;
};
std::string kind_text(const CollectiveKind& kind);  // "reduce_scatter bf16 -> bf16"

using CollectiveKinds = std::set<CollectiveKind>;
// Kinds that a plan runs among more ranks than one.
void add_kinds(const Plan& plan, CollectiveKinds& kinds);
// Kinds that a back end has at all, of every type; ranks_a_host: of sums.
CollectiveKinds all_kinds(const Catalogue& catalogue, int n_ranks, int64_t ranks_a_host = 0);

struct RankPlace {
  int rank = 0, n_ranks = 1;
};

// The first element that is another than it must be.
struct Mismatch {
  int32_t is_there = 0;
  int32_t pass = 0;
  int64_t element = 0, n_elems = 0;  // of the result
  double expected = 0, got = 0;
};

class CollectiveTrial {
 public:
  // sizes: elements of the whole tensors, each a node; of sharded_norm, all operands of one node.
  CollectiveTrial(const CollectiveKind& kind, std::vector<int64_t> sizes, RankPlace ranks,
                  const Catalogue& catalogue);
  const CollectiveKind& kind() const { return kind_; }
  const Plan& plan() const { return plan_; }

  // Arenas that are connected, and as large as plan() asks. They must outlive it.
  void bind(Catalogue& catalogue, Arenas& arenas);
  BoundPlan& bound() { return *bound_; }
  // Every pass has other numbers, so that no result is one of the pass before; results are
  // poisoned. Of the numbers of each sum, and of every maximum of floats, one rank has a NaN; where
  // there is a norm, every other pass.
  void write(int pass);
  Mismatch check(int pass) const;

 private:
  void write_x(size_t index, int pass);
  Mismatch check_tensor(size_t index, int pass) const;
  Mismatch check_norm(int pass) const;

  CollectiveKind kind_;
  std::vector<int64_t> sizes_;
  RankPlace ranks_;
  Plan plan_;
  Arenas* arenas_ = nullptr;
  std::unique_ptr<BoundPlan> bound_;
};

}  // namespace octet
