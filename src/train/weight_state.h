// Which weights of a rank are whole: an update may leave this rank's new shard of one, the rest
// being old, until something gathers the others' (passes/parallel/shard_updates.h).
#pragma once

#include <map>
#include <set>
#include <string>

#include "runtime/executor.h"

namespace octet {

class WeightState {
 public:
  // Every function is known before it is run.
  void add(const BoundPlan& function);
  // True if the function reads more than this rank's shard of a weight that is not whole, and does
  // not gather it itself.
  bool lacks(const BoundPlan& function) const;
  // It has run.
  void note(const BoundPlan& function);

 private:
  struct Use {
    std::set<std::string> read, gathered, left;  // parameters; left as shards
  };
  std::map<const BoundPlan*, Use> uses_;
  std::set<std::string> partial_;
};

}  // namespace octet
