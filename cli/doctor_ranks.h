// `octet doctor --ranks`: who started this process as which rank, and how ranks reach each other.
#pragma once

#include <functional>
#include <vector>

#include "cli/common.h"
#include "cli/finding.h"

namespace octet {

using ShowFindings = std::function<void(const std::vector<Finding>&)>;

// Started by a launcher, ranks meet, compare their programs and measure all_gather, and rank 0
// calls `show`; with n_ranks > 0 the ranks are started here. Otherwise it is called with what this
// host offers to ranks. Returns the status to end with; on GPUs it is an error where they do not
// reach each other's memory, or a collective has a wrong result.
int doctor_ranks(const GlobalOptions& options, int n_ranks, const ShowFindings& show);

}  // namespace octet
