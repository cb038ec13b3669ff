#include "cli/launched_ranks.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/temporary_file.h"
#include "cli/common.h"
#include "cli/error_of.h"
#include "cli/output.h"
#include "comm/mpi/group.h"
#include "comm/tcp/group.h"
#include "library/open_backend.h"

namespace octet {
namespace {

using Hears = std::function<void(const LastWord&)>;

void write_word(const LastWord& word) {
  write_err(fmt::format("octet: {}\n", word.text));
}

// Another rank's failure, with the words `if_lost` behind it where it was lost.
LastWord word_of(const Error& failure, std::string_view if_lost) {
  const bool is_lost = failure.code() == ErrorCode::rank_lost;
  return {.is_lost = is_lost,
          .code = exit_code(failure.code()),
          .text = fmt::format("{}{}", failure.what(), is_lost ? if_lost : "")};
}

std::unique_ptr<Group> join_by_mpi(const Launch& launch, const tcp::ControlOptions& control) {
  const mpi::Library library = mpi::find_library(mpi_module_path());
  if (!library.problem.empty())
    throw Error(ErrorCode::device,
                "[ranks] started as rank {} of {} by {}: expected MPI, or MASTER_ADDR and "
                "MASTER_PORT, where ranks meet without it, got {}",
                launch.rank, launch.size, launch.launcher, library.problem);
  auto group = mpi::join_ranks(mpi_module_path(), launch.times.patience, control);
  if (group->rank() == launch.rank && group->size() == launch.size) return group;
  const std::string why = fmt::format(
      "[ranks] {} started rank {} of {}, which {} takes for rank {} of {} (is it the launcher's "
      "own library?)",
      launch.launcher, launch.rank, launch.size, library.version, group->rank(), group->size());
  group->fail(why);
  throw Error(ErrorCode::device, why);
}

// hears: on_stuck comes from a thread beside the work, which does not end.
std::unique_ptr<Group> join(const Launch& launch, tcp::Socket listener, std::string if_lost,
                            const Hears& hears) {
  const auto end_process = [if_lost = std::move(if_lost), hears](const Error& failure) {
    remove_unfinished_files();
    const LastWord word = word_of(failure, if_lost);
    hears(word);
    ::_exit(word.code);
  };
  const tcp::ControlOptions control{
      .silence = launch.times.silence, .stuck = launch.times.stuck, .on_stuck = end_process};
  if (launch.port == 0) return join_by_mpi(launch, control);
  return tcp::join_ranks({.rank = launch.rank,
                          .size = launch.size,
                          .addresses = {launch.address},
                          .port = launch.port,
                          .token = launch.token,
                          .patience = launch.times.patience},
                         control, std::move(listener));
}

// The failure that counts, where it is another rank's.
Error first_failure(Group& group, const Error& otherwise) {
  try {
    gather_value(&group, 0);
  } catch (const Error& error) {
    return error;
  }
  return otherwise;
}

LastWord last_word(Group& group, const Error& own, std::string_view if_lost) {
  const int code = exit_code(own.code());
  if (group.fail(own.what())) {
    const std::string who = group.rank() > 0 ? fmt::format("[rank {}] ", group.rank()) : "";
    return {.is_own = true, .code = code, .text = who + own.what()};
  }
  const bool says_who = std::string_view(own.what()).starts_with("[ranks] rank ");
  LastWord word = word_of(says_who ? own : first_failure(group, own), if_lost);
  if (!word.is_lost) word.code = code;
  return word;
}

}  // namespace

int run_launched_rank(const Launch& launch, const std::function<void(Group& group)>& body,
                      std::string_view if_lost, RankParent parent) {
  const Hears hears = parent.hears ? parent.hears : write_word;
  const std::unique_ptr<Group> group =
      join(launch, std::move(parent.listener), std::string(if_lost), hears);
  try {
    int code = 0;
    try {
      body(*group);
    } catch (const ExitStatus& status) {
      code = status.code;
    }
    // A launcher takes all ranks down when the first one ends badly: none does before the others.
    const std::vector<int> codes = gather_value(group.get(), code);
    return *std::ranges::max_element(codes);
  } catch (const std::exception& error) {
    const LastWord word = last_word(*group, error_of(error), if_lost);
    hears(word);
    // Launchers ask the others to end when the first one has.
    std::signal(SIGTERM, SIG_IGN);
    return word.code;
  }
}

RankHosts find_hosts(Group& group) {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (const char* named = std::getenv("OCTET_HOST")) boot = named;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  Xxh64 hash;
  hash.update(boot.empty() ? name : boot);
  const uint64_t host = hash.digest();
  hash.add(cores);
  const uint64_t host_cores = hash.digest();
  const std::vector<uint64_t> hosts = gather_value(&group, host);
  const std::vector<uint64_t> all_cores = gather_value(&group, host_cores);
  const auto count = [](auto begin, auto end, uint64_t value) {
    return static_cast<int>(std::count(begin, end, value));
  };
  const int each = count(hosts.begin(), hosts.end(), hosts[0]);
  bool is_even = true;  // every rank is of the host of the first of so many
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    is_even &= hosts[rank] == hosts[rank / static_cast<size_t>(each) * static_cast<size_t>(each)] &&
               count(hosts.begin(), hosts.end(), hosts[rank]) == each;
  }
  return {.local_rank = count(hosts.begin(), hosts.begin() + group.rank(), host),
          .n_local = count(hosts.begin(), hosts.end(), host),
          .n_hosts = static_cast<int>(std::set(hosts.begin(), hosts.end()).size()),
          .ranks_a_host = is_even ? each : 0,
          .n_on_cores = count(all_cores.begin(), all_cores.end(), host_cores)};
}

}  // namespace octet
