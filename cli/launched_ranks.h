// This process as one rank of several that a launcher started, here or on other hosts.
#pragma once

#include <functional>
#include <string_view>

#include "cli/launch.h"
#include "comm/group.h"

namespace octet {

// Waits for the other ranks and calls body(group). Returns the status to end with: the largest of
// all ranks', which end together, or that of the error that this rank says in one line: its own, or
// the one that names the rank that failed first, with the words `if_lost` behind it where that one
// was lost (Error{rank_lost}). Throws Error where the ranks do not find each other. Ends the
// process where its work goes on for seconds after another rank has failed.
int run_launched_rank(const Launch& launch, const std::function<void(Group& group)>& body,
                      std::string_view if_lost = "");

// Which of the ranks share this host, and how many hosts there are. Every rank calls it. OCTET_HOST
// names the host, for tests of several on one machine.
struct RankHosts {
  int local_rank = 0, n_local = 1, n_hosts = 1;
  int ranks_a_host = 0;  // where each host has as many, whose numbers follow each other; else 0
  int n_on_cores = 1;    // of this host's ranks, that may use the same cores as this one
};
RankHosts find_hosts(Group& group);

}  // namespace octet
