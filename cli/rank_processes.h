// Ranks as processes of this host that the program starts itself: one for each GPU.
#pragma once

#include <functional>
#include <string_view>

#include "cli/launch.h"
#include "comm/group.h"

namespace octet {

// Forks n processes, each of which is a launched rank (launched_ranks.h): they meet at a port of
// the loopback that nobody else has, call body(group, launch) and end. Waits for them and returns
// the status to end with: the largest of theirs, or that of the rank that failed first, 75 where it
// was lost. One line says why: that rank's own words, or that it was killed, stopped or is silent,
// with the words `if_lost` behind it; the others follow within seconds. SIGINT, SIGTERM and SIGHUP
// go on to the ranks. None outlives this process. Call while it has one thread.
int run_rank_processes(int n_ranks,
                       const std::function<void(Group& group, const Launch& launch)>& body,
                       std::string_view if_lost = "");

}  // namespace octet
