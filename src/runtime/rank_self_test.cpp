#include "runtime/rank_self_test.h"

#include <algorithm>

#include "base/error.h"
#include "ir/sharding.h"
#include "runtime/trial_graph.h"

namespace octet {
namespace {

constexpr int kLaunched = 2, kPasses = 4;

std::vector<int64_t> trial_sizes(const CollectiveKind& kind, int n_ranks) {
  // A maximum is one block's work, since plans have few numbers of it.
  const int64_t n_bytes = is_max(kind) ? int64_t{64} << 10 : int64_t{1} << 20;
  const int64_t n_elems = n_bytes / bytes_of(kind.x, 1);
  const int64_t runs = kShardMultiple * n_ranks;
  if (kind.in_place) return {runs, 3 * runs, n_elems / runs * runs};
  return {1, 255, runs + 13, n_elems + 77};
}

}  // namespace

void expect_no_mismatch(Group& group, const CollectiveKind& kind, const Mismatch& own) {
  const std::vector<Mismatch> all = gather_value(&group, own);
  const auto found =
      std::ranges::find_if(all, [](const Mismatch& one) { return one.is_there != 0; });
  if (found == all.end()) return;
  throw Error(ErrorCode::device,
              "[ranks] self-test: {}, rank {}, element {}: expected {}, got {} (of {}, {})",
              kind_text(kind), found - all.begin(), found->element, found->expected, found->got,
              found->n_elems, found->pass < kLaunched ? "launched" : "replayed from a recording");
}

RankSelfTest::RankSelfTest(const CollectiveKinds& kinds, Group& group, const Catalogue& catalogue)
    : group_(group) {
  const RankPlace ranks{.rank = group.rank(), .n_ranks = group.size()};
  for (const CollectiveKind& kind : kinds)
    trials_.push_back(std::make_unique<CollectiveTrial>(kind, trial_sizes(kind, ranks.n_ranks),
                                                        ranks, catalogue));
}

void RankSelfTest::raise(int64_t (&arena_bytes)[kArenaCount]) const {
  for (const auto& trial : trials_) {
    for (int arena = 0; arena < kArenaCount; ++arena)
      arena_bytes[arena] = std::max(arena_bytes[arena], trial->plan().arena_bytes[arena]);
  }
}

Mismatch RankSelfTest::run_one(CollectiveTrial& trial, Arenas& arenas,
                               std::chrono::milliseconds patience) {
  Mismatch found;
  for (int pass = 0; pass < kPasses; ++pass) {
    trial.write(pass);
    // Its own first run launches, the later ones replay.
    if (pass == 0) {
      trial.bound().run(StepObserver{});
    } else {
      trial.bound().run();
    }
    arenas.device().await_ranks(patience);
    if (found.is_there == 0) found = trial.check(pass);
  }
  return found;
}

SelfTestResult RankSelfTest::run(Catalogue& catalogue, Arenas& arenas,
                                 std::chrono::milliseconds patience) {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& trial : trials_) {
    trial->bind(catalogue, arenas);
    // Together: a rank that ended alone would leave the others waiting on their devices.
    expect_no_mismatch(group_, trial->kind(), run_one(*trial, arenas, patience));
  }
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - begin;
  return {.n_kernels = static_cast<int>(trials_.size()), .ms = passed.count()};
}

}  // namespace octet
