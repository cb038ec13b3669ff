// Ranks as processes of this host: one for each GPU.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "comm/group.h"

namespace octet {

// Forks n processes, which each call body(group) and end, and waits for them. The status to end
// with: 0, or that of the rank that failed first, 75 where it was lost. A rank that ends by an
// error says its line; one that is killed, or stopped for as long as `silence`, is named in one,
// with the words `if_lost` behind it; the others follow within seconds. SIGINT, SIGTERM and SIGHUP
// go on to the ranks. Call while the process has one thread.
int run_rank_processes(int n_ranks, const std::function<void(Group& group)>& body,
                       std::string_view if_lost = "",
                       std::chrono::milliseconds silence = std::chrono::seconds(15));

}  // namespace octet
