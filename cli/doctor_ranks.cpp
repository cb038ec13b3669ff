#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include "base/cores.h"
#include "base/error.h"
#include "bench/rank_links.h"
#include "cli/backend.h"
#include "cli/launch.h"
#include "cli/launched_ranks.h"
#include "cli/output.h"
#include "cli/rank_agreement.h"
#include "cli/rank_processes.h"
#include "comm/mpi/group.h"
#include "library/open_backend.h"

namespace octet {
namespace {

Finding find_mpi() {
  const mpi::Library library = mpi::find_library(mpi_module_path());
  const bool is_there = library.problem.empty();
  return {"MPI", is_there, is_there ? library.version : library.problem,
          is_there ? ""
                   : "libopenmpi-dev and openmpi-bin, then build again; with MASTER_ADDR and "
                     "MASTER_PORT ranks need no MPI"};
}

using HostName = std::array<char, 64>;

// "node1 (ranks 0, 1), node2 (rank 2)"
std::string hosts_text(const std::vector<HostName>& names) {
  std::vector<std::string> hosts;
  std::vector<std::vector<size_t>> ranks;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    const std::string name = names[rank].data();
    const auto at = std::ranges::find(hosts, name) - hosts.begin();
    if (at == std::ssize(hosts)) hosts.push_back(name), ranks.emplace_back();
    ranks[static_cast<size_t>(at)].push_back(rank);
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < hosts.size(); ++i)
    texts.push_back(fmt::format("{} ({} {})", hosts[i], ranks[i].size() == 1 ? "rank" : "ranks",
                                fmt::join(ranks[i], ", ")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

Finding find_rank_hosts(Group& group) {
  HostName name{};
  ::gethostname(name.data(), name.size() - 1);
  return {"hosts", true, hosts_text(gather_value(&group, name)), ""};
}

Finding find_rank_cores(Group& group) {
  const RankHosts hosts = find_hosts(group);
  const std::vector<int> shares =
      gather_value(&group, std::max(1, usable_cores() / hosts.n_on_cores));
  return {"cores", true, fmt::format("{} for each rank (--threads)", fmt::join(shares, ", ")), ""};
}

// Mean time of the slowest rank, after one that is not counted.
double seconds_of(Group& group, int64_t bytes, int n_times) {
  std::vector<std::byte> own(static_cast<size_t>(bytes), std::byte{1}),
      all(own.size() * static_cast<size_t>(group.size()));
  group.all_gather(own.data(), all.data(), bytes);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < n_times; ++i) group.all_gather(own.data(), all.data(), bytes);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  const std::vector<double> times = gather_value(&group, passed.count() / n_times);
  return *std::ranges::max_element(times);
}

Finding find_rank_speed(Group& group) {
  constexpr int64_t kLong = int64_t{16} << 20;
  const double least = seconds_of(group, 8, 100), longest = seconds_of(group, kLong, 5);
  const double received = static_cast<double>(kLong * (group.size() - 1));
  return {"all_gather", true,
          fmt::format("measured: 8 bytes in {:.0f} us, {:.2f} GB/s to each rank at 16 MiB of each",
                      least * 1e6, received / longest / 1e9),
          ""};
}

// How fast devices reach each other, every collective proved: they are asked as a run asks them.
std::vector<Finding> find_peers(Group& group, std::optional<int> local_rank,
                                const GlobalOptions& options) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const RankHosts hosts = find_hosts(group);
  Backend backend =
      open_backend(options, {.device_index = local_rank.value_or(hosts.local_rank)}, &group);
  join_devices(backend, group, options);
  const BenchMachine machine{.backend = backend, .isa = options.device};
  const LinkRows links = bench_links(machine, group, "GPUs", {.least = kBytes, .most = kBytes});
  std::vector<Finding> found = {
      {"GPUs", true, fmt::format("{} x {}", group.size(), backend.device->info().name), ""},
      {"transport", true, backend.device->transport(), ""},
      {"collectives", true,
       fmt::format("verified: {} kernels in {:.0f} ms", links.self_test.n_kernels,
                   links.self_test.ms),
       ""}};
  for (const BenchRow& row : links.rows)
    found.push_back(
        {row.name, true,
         fmt::format("measured: {:.4g} {} ({}), verified", row.value, row.unit, row.shape), ""});
  return found;
}

std::vector<Finding> find_launched(Group& group, const Launch& launch,
                                   const GlobalOptions& options) {
  expect_same(group, {program_fact()});
  const std::string way =
      launch.port == 0 ? "MPI" : fmt::format("TCP, {}:{}", launch.address, launch.port);
  std::vector<Finding> found = {
      {"launcher", true, fmt::format("{}, {} ranks", launch.launcher, launch.size), ""},
      {"ranks meet by", true, way, ""}};
  if (launch.port == 0) found.push_back(find_mpi());
  found.push_back(find_rank_hosts(group));
  found.push_back(find_rank_cores(group));
  found.push_back(find_rank_speed(group));
  if (options.device == "cuda") {
    for (const Finding& one : find_peers(group, launch.local_rank, options)) found.push_back(one);
  }
  return found;
}

}  // namespace

int doctor_ranks(const GlobalOptions& options, int n_ranks, const ShowFindings& show) {
  const auto launch = find_launch(::getenv);
  if (launch && n_ranks > 0 && n_ranks != launch->size)
    throw Error(ErrorCode::invalid_argument,
                "[doctor] --ranks: expected {}, as many as {} started, or no number, got {}",
                launch->size, launch->launcher, n_ranks);
  const auto examine = [&](Group& group, const Launch& as) {
    GlobalOptions of_rank = options;
    of_rank.quiet = options.quiet || group.rank() > 0;
    const std::vector<Finding> found = find_launched(group, as, of_rank);
    if (group.rank() > 0) return;
    show(found);
    finish_output();
  };
  if (!launch && n_ranks > 0) return run_rank_processes(n_ranks, examine);
  if (!launch) {
    show({{"launcher", false, "this process is no rank of several",
           "mpirun, srun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; `octet train --ranks "
           "N` needs none"},
          find_mpi()});
    return 0;
  }
  return run_launched_rank(*launch, [&](Group& group) { examine(group, *launch); });
}

}  // namespace octet
