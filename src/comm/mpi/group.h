// Ranks as processes that an MPI launcher started: MPI moves their bytes, so that ranks of one host
// use its memory and those of several whatever network the library knows. The library is opened
// while the program runs, which works without it.
//
// Who lives and who failed is told beside MPI, over TCP (comm/tcp/control.h): MPI's own calls would
// wait forever for a rank that is gone. Therefore collectives are begun and asked for.
#pragma once

#include <memory>
#include <string>

#include "comm/group.h"
#include "comm/tcp/control.h"

namespace octet::mpi {

// Library that the module of this path opens; "" without a problem, else why not.
struct Library {
  std::string version, problem;
};
Library find_library(const std::string& module);

// Throws Error{device} where there is no module or no library, or ranks do not reach rank 0 over
// TCP within `patience`. Once in a process. One thread at a time calls the group.
std::unique_ptr<Group> join_ranks(const std::string& module, std::chrono::milliseconds patience,
                                  const tcp::ControlOptions& options);

}  // namespace octet::mpi
