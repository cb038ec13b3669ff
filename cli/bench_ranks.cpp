#include "cli/bench_ranks.h"

#include <cstdlib>

#include "base/error.h"
#include "cli/backend.h"
#include "cli/launch.h"
#include "cli/launched_ranks.h"
#include "cli/rank_processes.h"
#include "comm/local.h"

namespace octet {
namespace {

int run_launched(const Launch& launch, const GlobalOptions& options, int n_ranks,
                 const RankBody& body) {
  if (n_ranks > 0 && n_ranks != launch.size)
    throw Error(ErrorCode::invalid_argument,
                "[bench] --ranks: expected {}, as many as {} started, or no --ranks, got {}",
                launch.size, launch.launcher, n_ranks);
  return run_launched_rank(launch, [&](Group& group) {
    GlobalOptions of_rank = options_of_rank(options, find_hosts(group).n_on_cores);
    of_rank.quiet = options.quiet || group.rank() > 0;
    body(group, of_rank, launch.port == 0 ? "ranks over MPI" : "ranks over TCP");
  });
}

}  // namespace

void run_bench_ranks(const GlobalOptions& options, int n_ranks, RankKind kind,
                     const RankBody& body) {
  if (const auto launch = find_launch(::getenv)) {
    const int code = run_launched(*launch, options, n_ranks, body);
    if (code != 0) throw ExitStatus{code};
    return;
  }
  if (n_ranks == 0) n_ranks = 2;
  const auto run = [&](Group& group, const char* ranks) {
    GlobalOptions of_rank = options_of_rank(options, n_ranks);
    of_rank.quiet = options.quiet || group.rank() > 0;
    body(group, of_rank, ranks);
  };
  if (kind == RankKind::threads && options.device == "cpu") {
    auto groups = local_groups(n_ranks);
    return run_local_ranks(groups, [&](Group& group) { run(group, "threads"); });
  }
  const int code = run_rank_processes(n_ranks, [&](Group& group) { run(group, "processes"); });
  if (code != 0) throw ExitStatus{code};
}

}  // namespace octet
