// `octet bench` between ranks: of this process or of several, or as a launcher started them.
#pragma once

#include <functional>

#include "base/named_enum.h"
#include "cli/common.h"
#include "comm/group.h"

namespace octet {

enum class RankKind : uint8_t { threads, processes };
constexpr auto value_names(RankKind) {
  return name_list("threads", "processes");
}

// Calls body once a rank, with the options of one that shares the cores, and with what the ranks
// are ("threads", "processes", "ranks over TCP", "ranks over MPI"). Where a launcher started this
// process, it is one of the launcher's ranks: n_ranks must be theirs, or 0. GPUs take a process
// each. Throws Error, or ExitStatus where a process has failed and said so.
using RankBody =
    std::function<void(Group& group, const GlobalOptions& of_rank, const std::string& ranks)>;
void run_bench_ranks(const GlobalOptions& options, int n_ranks, RankKind kind,
                     const RankBody& body);

}  // namespace octet
