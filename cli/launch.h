// Launch of this process as one of several ranks, and as which: by the variables that launchers
// set. The only place that knows them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "comm/rank_times.h"

namespace octet {

struct Launch {
  std::string launcher;  // "torchrun", "mpirun", "srun"; "octet": this program, by --ranks
  int rank = 0, size = 1;
  std::optional<int> local_rank;  // among the ranks of its host
  std::string address;            // of rank 0, where it is known; at `port`
  int port = 0;
  bool has_mpi = false;  // an MPI library would find the other ranks
  uint64_t token = 0;    // of ranks that one process started: who lacks it is a stranger
  RankTimes times;
};

using Variables = std::function<const char*(const char* name)>;  // nullptr: not set

// Reads, the first that is there counting:
//   torchrun and whoever sets the same   RANK WORLD_SIZE LOCAL_RANK
//   mpirun (OpenMPI, PRRTE)              OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK
//   mpirun, mpiexec (Hydra: MPICH)       PMI_RANK PMI_SIZE MPI_LOCALRANKID
//   srun                                 SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_LOCALID; PMIX_RANK
//                                        tells of srun --mpi=pmix
// and with each of them MASTER_ADDR and MASTER_PORT: without MPI, ranks meet there, at the next
// port where torchrun listens itself (TORCHELASTIC_USE_AGENT_STORE is True); and
// OCTET_JOIN_SECONDS, OCTET_SILENCE_SECONDS, OCTET_STUCK_SECONDS. None where this is the only rank
// (size 1 is none). In the batch script of a Slurm job, which is no step, nothing of Slurm counts.
// Throws Error{invalid_argument} naming a variable that has no sense, or lacks; RANK or WORLD_SIZE
// alone lacks the other where no launcher after it is there.
std::optional<Launch> find_launch(const Variables& variable);

// The same for a rank that this program starts itself on this machine, whose ranks meet at this
// port of its loopback. Reads OCTET_..._SECONDS alone.
Launch own_launch(const Variables& variable, int rank, int size, int port);

}  // namespace octet
