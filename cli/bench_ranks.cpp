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

void expect_launched(const Launch& launch, int n_ranks) {
  if (n_ranks > 0 && n_ranks != launch.size)
    throw Error(ErrorCode::invalid_argument,
                "[bench] --ranks: expected {}, as many as {} started, or no --ranks, got {}",
                launch.size, launch.launcher, n_ranks);
}

}  // namespace

void run_bench_ranks(const GlobalOptions& options, int n_ranks, RankKind kind,
                     const RankBody& body) {
  const auto run = [&](Group& group, int n_on_cores, const char* ranks) {
    GlobalOptions of_rank = options_of_rank(options, n_on_cores);
    of_rank.quiet = options.quiet || group.rank() > 0;
    body(group, of_rank, ranks);
  };
  int code = 0;
  if (const auto launch = find_launch(::getenv)) {
    expect_launched(*launch, n_ranks);
    code = run_launched_rank(*launch, [&](Group& group) {
      run(group, find_hosts(group).n_on_cores,
          launch->port == 0 ? "ranks over MPI" : "ranks over TCP");
    });
  } else {
    if (n_ranks == 0) n_ranks = 2;
    if (kind == RankKind::threads && options.device == "cpu") {
      auto groups = local_groups(n_ranks);
      return run_local_ranks(groups, [&](Group& group) { run(group, n_ranks, "threads"); });
    }
    code = run_rank_processes(
        n_ranks, [&](Group& group, const Launch&) { run(group, n_ranks, "processes"); });
  }
  if (code != 0) throw ExitStatus{code};
}

}  // namespace octet
