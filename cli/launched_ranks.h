// This process as one rank of several that a launcher started, here or on other hosts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/launch.h"
#include "comm/group.h"
#include "comm/tcp/socket.h"

namespace octet {

// Last message of a rank that ends by an error.
struct LastWord {
  bool is_own = false;   // it has failed itself, and first of all
  bool is_lost = false;  // another was lost
  int code = 0;          // the status that it ends with
  std::string text;      // one line
};

// Parts that a rank has of the process that started all ranks of a run.
struct RankParent {
  tcp::Socket listener;                             // at the launch's port: rank 0's
  std::function<void(const LastWord& word)> hears;  // in the place of standard error
};

// Waits for the other ranks and calls body(group). Returns the status to end with: the largest of
// all ranks', which end together, or that of the error that this rank says in one line: its own, or
// the one that names the rank that failed first, with the words `if_lost` behind it where that one
// was lost (Error{rank_lost}). Throws Error where the ranks do not find each other. Ends the
// process where its work goes on for seconds after another rank has failed.
int run_launched_rank(const Launch& launch, const std::function<void(Group& group)>& body,
                      std::string_view if_lost = "", RankParent parent = {});

// Which of the ranks share this host, and how many hosts there are. Every rank calls it. OCTET_HOST
// names the host, for tests of several on one machine.
struct RankHosts {
  int local_rank = 0, n_local = 1, n_hosts = 1;
  int ranks_a_host = 0;  // where each host has as many, whose numbers follow each other; else 0
  int n_on_cores = 1;    // of this host's ranks, that may use the same cores as this one
};
RankHosts find_hosts(Group& group);

}  // namespace octet
