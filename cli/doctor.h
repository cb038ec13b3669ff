// The parts of `octet doctor`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"

namespace octet {

// One thing that `octet doctor` looked at, a line of its table.
struct Finding {
  std::string what;
  bool is_there = false;
  std::string detail;
  std::string remedy;  // what to do when it is missing; empty: nothing can or need be done
};

// `octet doctor --ranks`: who started this process as which rank, and how ranks reach each other.
using ShowFindings = std::function<void(const std::vector<Finding>&)>;

// Started by a launcher, ranks meet, compare their programs and measure all_gather, and rank 0
// calls `show`; with n_ranks > 0 the ranks are started here. Otherwise it is called with what this
// host offers to ranks. Returns the status to end with; on GPUs it is an error where they do not
// reach each other's memory, or a collective has a wrong result.
int doctor_ranks(const GlobalOptions& options, int n_ranks, const ShowFindings& show);

// octet doctor --prove CONFIG: the kernels of a run, each compared with the CPU's reference kernel
// on this machine; whose sums are those of the device's tensor cores, where a rule is known and
// nothing else is asked for.
// Prints a line a kernel. Throws what load_config, open_backend and prove_run throw.
void doctor_prove(const GlobalOptions& options, const std::string& config,
                  std::optional<Arithmetic> arithmetic);

}  // namespace octet
