#include "cli/bench_record.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "bench/record_bench.h"
#include "cli/backend.h"
#include "cli/csv.h"
#include "cli/recipe_files.h"
#include "config/load.h"

namespace octet {
namespace {

// Columns of tools/torch_record.py, too.
const std::vector<std::string> kColumns = {
    "system", "recipe",  "device", "parameters",   "tokens_a_step", "loss_asked", "loss",
    "steps",  "seconds", "joules", "tokens_per_s", "memory_bytes",  "start_s"};

std::vector<std::string> row_of(const Record& record, double asked, const std::string& device) {
  return cells(
      "octet", record.recipe, device, record.parameters, record.tokens / record.steps, asked,
      fmt::format("{:.4f}", record.loss), record.steps,
      // A run that ended before has no time to this loss.
      record.is_reached ? fmt::format("{:.4g}", record.seconds) : std::string("not reached"),
      record.joules ? fmt::format("{:.0f}", *record.joules) : std::string("not counted"),
      fmt::format("{:.0f}", static_cast<double>(record.tokens) / record.seconds),
      record.planned_bytes, fmt::format("{:.2f}", record.start_seconds));
}

// Rows behind those that are there, each at once: a recipe that fails takes no other's figures.
class CsvRows {
 public:
  // Throws before anything is measured. An empty path: none are written.
  explicit CsvRows(const std::string& path) : path_(path) {
    if (path.empty()) return;
    const bool is_new = !std::filesystem::exists(path) || std::filesystem::file_size(path) == 0;
    file_.open(path, std::ios::app);
    if (is_new) file_ << csv_row(kColumns);
    check();
  }
  void add(const std::vector<std::string>& row) {
    if (path_.empty()) return;
    file_ << csv_row(row);
    check();
  }

 private:
  void check() {
    if (!file_.flush()) throw Error(ErrorCode::io, "cannot write '{}'", path_);
  }
  std::string path_;
  std::ofstream file_;
};

}  // namespace

void run_bench_record(const RecordFlags& flags, const GlobalOptions& options) {
  if (flags.loss <= 0)
    throw Error(ErrorCode::invalid_argument,
                "[bench record] --loss: expected the validation loss to reach, got none");
  const std::string file = config_path(flags.config.empty() ? "llama-124m" : flags.config);
  const auto config = [&](const std::string& recipe) {
    std::vector<std::string> sets = options.config_sets();
    sets.push_back("recipe.base=" + recipe);
    return load_config(file, sets);
  };
  const TrainConfig train = config(flags.recipes.front()).config.train;
  Backend backend =
      open_backend(options, {.deterministic = train.deterministic, .arithmetic = train.arithmetic});
  const BenchMachine machine{backend, kernels_name(options), make_log(options)};
  const std::string device = backend.device->info().name;
  Table table{kColumns, {}};
  CsvRows csv(flags.csv);
  bench_records(machine, {config, flags.recipes, flags.loss, flags.every},
                [&](const Record& record) {
                  table.rows.push_back(row_of(record, flags.loss, device));
                  csv.add(table.rows.back());
                });
  print_table(options, table);
  finish_output();
}

}  // namespace octet
