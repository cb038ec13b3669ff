// The back end that --device, --isa and --threads ask for.
#pragma once

#include <optional>

#include "cli/common.h"
#include "comm/group.h"
#include "config/run_config.h"
#include "infer/inference.h"
#include "plan/backend.h"

namespace octet {

// Demands of a command on the device's kernels.
struct KernelNeeds {
  bool deterministic = false;  // train.deterministic: on the CPU they always are
  bool same_rows = false;      // a row's bits for any number of rows: on the CPU (RowSums::same)
  std::optional<int> device_index = {};     // of the host's GPUs; without it, as the rank
  Arithmetic arithmetic = Arithmetic::own;  // train.arithmetic; own: as GlobalOptions has it
  int ranks = 1;                            // without a group: that programs are planned for
};

// NCCL's library, as OCTET_NCCL names it; empty where it does not.
std::string nccl_file();

std::string isa_of(const GlobalOptions& options);        // "avx512"; of a GPU ""
std::string kernels_name(const GlobalOptions& options);  // "cuda" there

// All ranks take the first GPU where OCTET_SHARE_GPU is 1: for tests of ranks where there is one.
// Throws Error{device} for a device that is not there, Error{invalid_argument} for instructions
// that the machine lacks and for needs that the device does not meet. Call once in a process, or
// once a rank of `group`.
Backend open_backend(const GlobalOptions& options, const KernelNeeds& needs = {},
                     Group* group = nullptr);

// All ranks together, once each has its GPU: settles what moves data between them (Device::join),
// without a configuration's `parallel` as --set says.
void join_devices(Backend& backend, Group& group, const GlobalOptions& options,
                  const std::optional<ParallelConfig>& parallel = {});

// The same to plan with: needs no device.
Backend open_plan_backend(const GlobalOptions& options, const KernelNeeds& needs = {});

// --arithmetic, to GlobalOptions::arithmetic.
void add_arithmetic_option(CLI::App& command, GlobalOptions& options);

// With this machine's files.
TextMachine text_machine(const Backend& backend, const Log& log = {});

// For one of as many ranks, which share the machine's cores.
GlobalOptions options_of_rank(const GlobalOptions& options, int64_t n_ranks);

}  // namespace octet
