// A back end by the names that users write: what the command line, Python and include/octet open.
#pragma once

#include <optional>
#include <string>

#include "backends/cpu/gemm/tile_gemm.h"
#include "base/log.h"
#include "comm/group.h"
#include "plan/backend.h"

namespace octet {

struct BackendRequest {
  std::string device = "cpu";    // cpu, cuda
  std::string isa = "auto";      // auto, scalar, avx2, avx512, amx: of the CPU's kernels
  int threads = 0;               // 0: one per core that this process may use
  std::string cuda_module = {};  // its path; empty: cuda_module_path()
  std::string nccl = {};         // file of NCCL's library; empty: libnccl.so.2
  int device_index = 0;          // of the host's GPUs
  bool deterministic = false;    // train.deterministic: on the CPU kernels always are
  cpu::RowSums rows = cpu::RowSums::library;
  Arithmetic arithmetic = Arithmetic::own;
  Group* group = nullptr;  // of ranks that are threads of this process, on the CPU
  int ranks = 1;           // that run programs together
};

// Throws Error{invalid_argument} for unknown names and for instructions that the machine lacks,
// Error{device} for a device that is not there. Fewer threads than asked for are logged.
Backend open_backend(const BackendRequest& request, const Log& log = {});
// To plan with: needs no device.
Backend open_plan_backend(const BackendRequest& request, const Log& log = {});

// A CPU with the sums of the back end's tensor cores, or of its own where it has a card's
// (TrainerMachine::auditor); what is planned from now on has these sums. Nothing where no rule is
// known, or `every` is 0.
std::optional<Backend> audit_backend(Catalogue& catalogue, int64_t every);

// The instruction set that a back end of this request has; "" where its device is not the CPU.
std::string isa_of(const BackendRequest& request);

// The request to go on with a run whose newest checkpoint records this instruction set ("": none):
// auto becomes it, where the machine has it. What that changes is logged.
BackendRequest resumed_request(BackendRequest request, const std::string& recorded_isa,
                               const Log& log);

// The path of the CUDA module: beside the program, in cuda/ beside it, or installed (lib/octet of
// its prefix); absolute, also where there is none. Empty where the system does not say which file
// this program is.
std::string cuda_module_path();
// The same for liboctet_mpi.so: beside the program, or installed.
std::string mpi_module_path();

}  // namespace octet
