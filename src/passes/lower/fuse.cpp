#include "passes/lower/fuse.h"

#include "passes/lower/fold.h"
#include "passes/lower/fuse_amax.h"

namespace octet {
namespace {

// In the order in which a form takes up what is there. Those of a list see each other's nodes as
// they were; behind a list these are gone.
constexpr Fold kFirst[] = {{"one_layout", fold_one_layout}, {"load", fold_load}};
constexpr Fold kWindows[] = {{"windows", fold_windows}};
constexpr Fold kForms[] = {{"addend", fold_addend},
                           {"groups", fold_groups},
                           {"store", fold_store},
                           {"scaled_moment", fold_scaled_moment}};
constexpr Fold kLayers[] = {{"known_statistics", fold_known_statistics},
                            {"kept_operands", fold_kept_operands}};
constexpr Fold kLast[] = {{"own_scale", fold_own_scale}};

}  // namespace

Graph fuse(const Graph& graph, FuseReport* report, const TakesForm& takes) {
  Graph current = graph;
  const auto apply = [&](std::span<const Fold> folds) {
    current = apply_folds(std::move(current), folds, takes, report);
  };
  apply(kFirst);
  apply(kWindows);
  apply(kForms);
  apply(kLayers);
  current = fuse_amax(current);
  apply(kLast);
  current.phase = Phase::lowered;
  return current;
}

}  // namespace octet
