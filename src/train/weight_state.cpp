#include "train/weight_state.h"

#include <algorithm>

namespace octet {

bool WeightState::is_missed_by(const BoundPlan& function) const {
  const std::set<std::string>& read = uses_.at(&function).read;
  return std::ranges::any_of(stale_, [&](const std::string& name) { return read.contains(name); });
}

void WeightState::note(const BoundPlan& function) {
  const WeightUse& use = uses_.at(&function);
  for (const std::string& name : use.gathered) stale_.erase(name);
  stale_.insert(use.left.begin(), use.left.end());
}

}  // namespace octet
