#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/cpu/backend.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/backend.h"
#include "cli/recipe_files.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/prove_products.h"
#include "train/prove_run.h"

namespace octet {
namespace {

// otherwise: why it is not proved.
std::string verdict(bool is_proved, const std::string& why_near, const std::string& otherwise) {
  return !is_proved ? otherwise : why_near.empty() ? "yes" : why_near;
}

// Kernels of the run first, in its order; then others that the small sizes take.
Table table_of(const std::vector<std::string>& planned, KernelProofs proofs,
               const std::string& otherwise) {
  Table table{{"kernel", "proved", "nodes", "values", "other bits", "distance"}, {}};
  const auto add = [&](const std::string& kernel, const KernelProof& proof) {
    table.rows.push_back(cells(kernel, verdict(proof.n_nodes > 0, proof.why_near, otherwise),
                               proof.n_nodes, proof.n_values, proof.n_other,
                               fmt::format("{:.3f}", proof.worst)));
  };
  for (const std::string& kernel : planned) {
    const auto found = proofs.extract(kernel);
    add(kernel, found ? found.mapped() : KernelProof{});
  }
  for (const auto& [kernel, proof] : proofs) add(kernel, proof);
  return table;
}

// GEMMs at the run's own sizes.
Table table_of(const std::vector<ProductProof>& products) {
  Table table{{"gemm", "proved", "m", "n", "k", "values", "other bits"}, {}};
  for (const ProductProof& p : products)
    table.rows.push_back(
        cells(p.kernel, verdict(true, p.why_near, ""), p.m, p.n, p.k, p.n_values, p.n_other));
  return table;
}

// Behind a number of kernels or GEMMs: how many of them are proved within a bound alone.
template <typename Proofs>
std::string near_ones(const Proofs& proofs, const auto& why_of) {
  const auto n = std::ranges::count_if(proofs, [&](const auto& p) { return !why_of(p).empty(); });
  return n == 0 ? "" : fmt::format(", {} of them within a bound", n);
}

}  // namespace

void doctor_prove(const GlobalOptions& options, const std::string& path,
                  std::optional<Arithmetic> arithmetic) {
  const RunConfig config = load_config(config_path(path), options.config_sets()).config;
  const ModelSpec spec = model_from_config(posix_files(), config);
  const Backend device = open_backend(options, {.deterministic = config.train.deterministic});
  const Backend reference = cpu::make_backend(options.threads, cpu::Isa::scalar);
  const bool has_rule = device.catalogue->target().capability == capability_of(Arithmetic::hopper);
  const Arithmetic sums =
      arithmetic.value_or(has_rule ? Arithmetic::hopper : config.train.arithmetic);
  reference.catalogue->set_arithmetic(sums);
  device.catalogue->set_arithmetic(sums);
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
  const char* const otherwise = "no: not taken at small sizes";
  if (!options.json) show(otherwise);
  std::vector<ProductProof> products;
  if (sums == Arithmetic::hopper && has_rule) {
    const Backend cpu = cpu::make_backend(options.threads, cpu::detect_isa());
    cpu.catalogue->set_arithmetic(sums);
    products = prove_products(config, spec, device, cpu);
  }
  if (options.json) {
    OrderedJson all = table_json(table_of(planned, proofs, otherwise));
    for (const auto& row : table_json(table_of(products))) all.push_back(row);
    write_out(json_text(all));
  } else {
    if (!products.empty()) {
      write_line("");
      print_table(options, table_of(products));
    }
    const std::string near_kernels =
        near_ones(proofs, [](const auto& p) { return p.second.why_near; });
    const std::string near_products = near_ones(products, [](const auto& p) { return p.why_near; });
    write_line("\n{}: {} kernels as the reference{}{}{}", device.device->info().name, proofs.size(),
               near_kernels, products.empty() ? "" : ", and the run's GEMMs, to the bit",
               near_products);
  }
  finish_output();
}

}  // namespace octet
