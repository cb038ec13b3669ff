// How ranks of several processes find each other: rank 0 listens where all know, the others connect
// to it, again and again until it is there. Each says which rank of how many it is.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_times.h"
#include "comm/tcp/control.h"
#include "comm/tcp/socket.h"

namespace octet::tcp {

struct Place {
  int rank = 0, size = 1;
  std::vector<std::string> addresses;  // of rank 0: the first that answers
  int port = 0;
  uint64_t token = 0;  // of the run, where all know one
  std::chrono::milliseconds patience = RankTimes().patience;
};

// Each rank's connection to rank 0. Rank 0 takes them from `listener`; the others pass none.
// Throws Error{device} naming the ranks that are missing when patience is at its end, or a rank
// that expects another number of them or is there twice.
std::vector<Socket> join_star(const Place& place, const Socket& listener);

// Connections between all ranks, by rank, whose own is empty. Goes over the star's, which must not
// be in use yet; `control` then takes these. Rank 0's `listener` is the star's.
std::vector<Socket> join_mesh(const Place& place, const Socket& listener, std::vector<Socket> star,
                              const ControlOptions& options, std::unique_ptr<Control>& control);

}  // namespace octet::tcp
