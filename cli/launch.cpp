#include "cli/launch.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/parse_text.h"

namespace octet {
namespace {

constexpr int kMaxRanks = 1 << 16;
constexpr const char* kAgentListens = "TORCHELASTIC_USE_AGENT_STORE";

struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  bool has_mpi;
};
constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", false},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", true},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", true},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", false}};

bool is_set(const Variables& variable, const char* name) {
  const char* value = variable(name);
  return value != nullptr && *value != '\0';
}

int number(const Variables& variable, const char* name, int least, int most) {
  const std::string text = is_set(variable, name) ? variable(name) : "";
  const auto value = parse_number<int>(text);
  if (value && *value >= least && *value <= most) return *value;
  throw Error(ErrorCode::invalid_argument, "[ranks] {}: expected an integer in [{}, {}], got '{}'",
              name, least, most, text);
}

std::chrono::milliseconds seconds(const Variables& variable, const char* name,
                                  std::chrono::milliseconds fallback) {
  if (!is_set(variable, name)) return fallback;
  return std::chrono::seconds(number(variable, name, 1, 1'000'000));
}

RankTimes read_times(const Variables& variable) {
  const RankTimes usual;
  return {.patience = seconds(variable, "OCTET_JOIN_SECONDS", usual.patience),
          .silence = seconds(variable, "OCTET_SILENCE_SECONDS", usual.silence),
          .stuck = seconds(variable, "OCTET_STUCK_SECONDS", usual.stuck)};
}

void read_meeting_point(const Variables& variable, Launch& launch) {
  const bool has_address = is_set(variable, "MASTER_ADDR"),
             has_port = is_set(variable, "MASTER_PORT");
  if (has_address && has_port) {
    launch.address = variable("MASTER_ADDR");
    launch.port = number(variable, "MASTER_PORT", 1, 65534);
    // There torchrun itself listens, and says so.
    if (is_set(variable, kAgentListens) && variable(kAgentListens) == std::string_view("True"))
      ++launch.port;
  } else if (has_address != has_port || !launch.has_mpi) {
    throw Error(
        ErrorCode::invalid_argument,
        "[ranks] started as rank {} of {} by {}: expected MASTER_ADDR and MASTER_PORT, where "
        "ranks meet, {} {} not set",
        launch.rank, launch.size, launch.launcher,
        has_address ? "MASTER_PORT"
        : has_port  ? "MASTER_ADDR"
                    : "both",
        has_address || has_port ? "is" : "are");
  }
}

// With one of the two alone, each of several processes would train by itself, all in one folder.
// RANK=0 and WORLD_SIZE=1 tell of no others.
void expect_pair(const Variables& variable) {
  const bool has_rank = is_set(variable, "RANK"), has_size = is_set(variable, "WORLD_SIZE");
  if (has_rank == has_size) return;
  const char* there = has_rank ? "RANK" : "WORLD_SIZE";
  const std::string value = variable(there);
  if (value == (has_rank ? "0" : "1")) return;
  throw Error(ErrorCode::invalid_argument,
              "[ranks] expected RANK and WORLD_SIZE, or neither, got {}={} alone", there, value);
}

}  // namespace

Launch own_launch(const Variables& variable, int rank, int size, int port) {
  RankTimes times = read_times(variable);
  // All are started at once: who is not there soon does not come.
  times.patience = std::min(times.patience, 2 * times.silence);
  return {.launcher = "octet",
          .rank = rank,
          .size = size,
          .local_rank = rank,
          .address = "127.0.0.1",
          .port = port,
          .times = times};
}

std::optional<Launch> find_launch(const Variables& variable) {
  for (const Names& names : kLaunchers) {
    if (!is_set(variable, names.rank) || !is_set(variable, names.size)) continue;
    Launch launch;
    launch.launcher = names.launcher;
    launch.size = number(variable, names.size, 1, kMaxRanks);
    if (launch.size == 1) return std::nullopt;
    launch.rank = number(variable, names.rank, 0, launch.size - 1);
    if (is_set(variable, names.local_rank))
      launch.local_rank = number(variable, names.local_rank, 0, launch.size - 1);
    launch.has_mpi = names.has_mpi || is_set(variable, "PMIX_RANK");
    launch.times = read_times(variable);
    read_meeting_point(variable, launch);
    return launch;
  }
  expect_pair(variable);
  return std::nullopt;
}

}  // namespace octet
