#include "cli/doctor.h"

#include <fmt/format.h>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/backend.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/prove_run.h"

namespace octet {
namespace {

// Those of the run first, in its order; then others that the small sizes take. otherwise: why one
// is not proved.
Table table_of(const std::vector<std::string>& planned, KernelProofs proofs,
               const std::string& otherwise) {
  Table table{{"kernel", "proved", "nodes", "values", "other bits", "distance"}, {}};
  const auto add = [&](const std::string& kernel, const KernelProof& proof) {
    table.rows.push_back(cells(kernel, proof.n_nodes > 0 ? "yes" : otherwise, proof.n_nodes,
                               proof.n_values, proof.n_other, fmt::format("{:.3f}", proof.worst)));
  };
  for (const std::string& kernel : planned) {
    const auto found = proofs.extract(kernel);
    add(kernel, found ? found.mapped() : KernelProof{});
  }
  for (const auto& [kernel, proof] : proofs) add(kernel, proof);
  return table;
}

}  // namespace

void doctor_prove(const GlobalOptions& options, const std::string& path) {
  const RunConfig config = load_config(path, options.config_sets()).config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  const Backend device = open_backend(options, {.deterministic = config.train.deterministic});
  const Backend reference = cpu::make_backend(options.threads, cpu::Isa::scalar);
  const std::vector<std::string> planned = planned_kernels(config, spec, *device.catalogue);
  KernelProofs proofs;
  const auto show = [&](const char* otherwise) {
    print_table(options, table_of(planned, proofs, otherwise));
  };
  try {
    prove_run(config, spec, {device, reference, proofs});
  } catch (const Error&) {
    show("no: not reached");
    throw;
  }
  show("no: not taken at small sizes");
  if (!options.json)
    write_line("\n{}: {} kernels as the reference", device.device->info().name, proofs.size());
  finish_output();
}

}  // namespace octet
