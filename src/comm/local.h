// Ranks as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/group.h"

namespace octet {

// One group object a rank, each for one thread. They share their state; the last one frees it.
std::vector<std::unique_ptr<Group>> local_groups(int n_ranks);

// Calls body(group) once a rank, each on a thread of its own, rank 0's on the caller's, and waits
// for all. Where some throw, an error of rank 0's own is thrown, else that of the rank that failed
// first, as "[rank N] ...".
void run_local_ranks(std::vector<std::unique_ptr<Group>>& groups,
                     const std::function<void(Group& group)>& body);

}  // namespace octet
