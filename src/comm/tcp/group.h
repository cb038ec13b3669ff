// Ranks as processes of one or several hosts, over TCP: what every launcher can start.
#pragma once

#include <memory>

#include "comm/group.h"
#include "comm/tcp/join.h"

namespace octet::tcp {

// Waits for all ranks of the place. A connection between each two, for what they move; failures are
// told and found beside them (control.h): all calls throw then, whatever they wait for.
// listener: rank 0's, where somebody listens at the place's port for it already.
// Throws what join_star and join_mesh throw.
std::unique_ptr<Group> join_ranks(const Place& place, const ControlOptions& options,
                                  Socket listener = {});

}  // namespace octet::tcp
