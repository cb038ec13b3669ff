// Launches that a back end may make as one (LaunchArgs::joins_next): neighbours in the plan with
// kernels of one row that allow it (KernelChoice::may_join), none of which touches what
// another writes; of collectives those of one run.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace octet {

inline constexpr size_t kMaxJoined = 4;

// By step: whether the next one may be launched with it.
std::vector<bool> find_joined(const Plan& plan);

}  // namespace octet
