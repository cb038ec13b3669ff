#include "cli/bench_load.h"

#include "base/error.h"
#include "base/gguf.h"
#include "bench/load_bench.h"
#include "cli/backend.h"
#include "cli/model_folder.h"

namespace octet {

BenchRows run_bench_load(const LoadFlags& flags, const GlobalOptions& options) {
  if (!is_gguf_name(flags.file))
    throw Error(ErrorCode::invalid_argument, "[bench load] expected a GGUF file, got '{}'",
                flags.file);
  Backend backend = open_backend(options);
  const BenchMachine machine{backend, kernels_name(options), make_log(options)};
  BenchRows all;
  const std::vector<std::string> usual = {"fp32", "bf16"};
  for (const std::string& recipe : flags.recipes.empty() ? usual : flags.recipes) {
    const auto open = [&] {
      ModelSource source = find_model_source(
          posix_files(), model_path(posix_files(), flags.file, machine.log), machine.log);
      source.recipe = recipe;
      return source;
    };
    const BenchRows rows = bench_load(machine, {flags.file, open, flags.rounds});
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

}  // namespace octet
