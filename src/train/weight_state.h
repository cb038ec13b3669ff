// Which weights of a rank are whole: a step's update may leave this rank's new shard alone, the
// rest being old, until something gathers them (plan/weight_use.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "plan/weight_use.h"
#include "runtime/executor.h"

namespace octet {

class WeightState {
 public:
  // Every function is known before it is run.
  void add(const BoundPlan& function) { uses_[&function] = weight_use(function.plan().graph); }
  bool is_whole() const { return stale_.empty(); }
  // Whether the function takes weights to be whole that are not.
  bool is_missed_by(const BoundPlan& function) const;
  // It has run.
  void note(const BoundPlan& function);

 private:
  std::map<const BoundPlan*, WeightUse> uses_;
  std::set<std::string> stale_;  // of which there is this rank's shard alone
};

}  // namespace octet
