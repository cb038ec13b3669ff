#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/output_folder.h"
#include "base/parse_text.h"
#include "cli/report_csv.h"
#include "cli/report_page.h"
#include "cli/report_samples.h"
#include "cli/report_serve.h"
#include "cli/run_table.h"

namespace octet {
Table report_table(const GlobalOptions& options, const std::vector<RunData>& runs) {
  std::vector<RunSummary> summaries;
  summaries.reserve(runs.size());
  for (const RunData& run : runs) summaries.push_back(summarize(run));
  std::vector<std::string_view> units;
  for (const std::string_view unit : {kTokens, kPictures})
    if (std::ranges::count(summaries, unit, &RunSummary::unit) > 0) units.push_back(unit);
  Table table{{"run", "recipe", "steps", "train_loss", "val_loss", "best_val_loss"}, {}};
  for (const std::string_view unit : units) table.columns.push_back(speed_column(unit));
  const bool has_energy = std::ranges::any_of(
      summaries, [](const RunSummary& s) { return s.tokens_per_joule.has_value(); });
  if (has_energy) table.columns.emplace_back("per_joule");
  for (const char* column : {"planned_bytes", "state_bytes", "skipped", "spikes"})
    table.columns.emplace_back(column);
  const bool has_rescales =
      std::ranges::any_of(runs, [](const RunData& r) { return r.rescales.has_value(); });
  for (const char* column : {"measured", "at_run_time", "constant", "folded"})
    if (has_rescales) table.columns.push_back(fmt::format("{}_rescales", column));
  const auto loss = [](double x) { return x == x ? loss_number(x) : std::string(); };
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunData& run = runs[i];
    const RunSummary& s = summaries[i];
    std::vector<std::string> row = cells(run.name, run.recipe, s.n_steps, loss(s.train_loss),
                                         loss(s.val_loss), loss(s.best_val_loss));
    for (const std::string_view unit : units) {
      const bool has_speed = unit == s.unit && std::isfinite(s.tokens_per_s);
      row.push_back(has_speed ? fmt::format("{:.0f}", s.tokens_per_s) : "");
    }
    if (has_energy)
      row.push_back(s.tokens_per_joule ? fmt::format("{:.4g}", *s.tokens_per_joule) : "");
    for (std::string& cell : cells(bytes_cell(options, s.mem_bytes),
                                   run.state_bytes ? bytes_cell(options, *run.state_bytes) : "",
                                   s.n_skipped, run.n_spikes))
      row.push_back(std::move(cell));
    if (has_rescales) {
      const RescaleCounts r = run.rescales.value_or(RescaleCounts{});
      for (const int64_t count : {r.measured, r.at_run_time, r.constant, r.folded})
        row.push_back(run.rescales ? std::to_string(count) : "");
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out, csv, samples;
  std::string port;  // of --serve
};

int port_of(const std::string& text) {
  constexpr int kDefault = 8765, kLast = 65535;
  if (text.empty()) return kDefault;
  const int port = parse_number<int>(text).value_or(-1);
  if (port < 0 || port > kLast) {
    throw Error(ErrorCode::invalid_argument,
                "[report] --serve: expected a port in [0, {}], got '{}'; runs come before it",
                kLast, text);
  }
  return port;
}

void run_report(const ReportFlags& flags, const GlobalOptions& options) {
  Files& files = posix_files();
  const Log log = make_log(options);
  std::vector<RunData> runs;
  for (const std::string& path : distinct_runs(flags.runs, log))
    runs.push_back(RunReader(files, path, log).data());
  const Table summary = report_table(options, runs);
  struct Output {
    const char* option;
    std::string path, text;
    size_t n_own;  // characters that say that a file is such an output
  };
  std::vector<Output> outputs;
  constexpr std::string_view kTable = "run,recipe,seed,step,", kTitleEnd = "</title>";
  if (!flags.csv.empty())
    outputs.push_back({"[report] --csv", flags.csv, report_csv(runs), kTable.size()});
  if (!flags.samples.empty())
    outputs.push_back({"[report] --samples", flags.samples, samples_csv(runs), kTable.size()});
  const bool has_page = outputs.empty() || !flags.out.empty();
  const std::string page = flags.out.empty() ? "report.html" : flags.out;
  if (has_page) {
    std::string text = report_page(runs, summary);
    const size_t n_own = text.find(kTitleEnd);
    outputs.push_back({"[report] --out", page, std::move(text), n_own});
  }
  for (const Output& one : outputs)
    check_output_file(files, one.option, one.path, std::string_view(one.text).substr(0, one.n_own));
  for (const Output& one : outputs) {
    write_output(files, one.path, [&](FileWriter& out) { out.write(as_bytes(one.text)); });
  }
  print_table(options, summary);
  if (has_page) log.info("{}: open it in a browser", page);
}

}  // namespace

void add_report_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* report =
      app.add_subcommand("report", "curves, results and differences of runs as one HTML page");
  report->add_option("runs", flags->runs, "folders of runs")->required()->type_name("RUN");
  report->add_option("--out", flags->out, "the page; report.html, unless only tables are asked for")
      ->type_name("FILE.html");
  report->add_option("--csv", flags->csv, "the steps as a table: a line a step of a run")
      ->type_name("FILE.csv");
  report
      ->add_option(
          "--samples", flags->samples,
          "texts that the models wrote while they were trained (train.sample_prompts) as a "
          "table: a line a text")
      ->type_name("FILE.csv");
  report
      ->add_option("--serve", flags->port,
                   "serve the page on this machine alone (127.0.0.1), on port 8765 or another one, "
                   "0: any that is free, and follow runs that are trained")
      ->expected(0, 1)
      ->type_name("PORT")
      ->excludes("--out")
      ->excludes("--csv")
      ->excludes("--samples");
  report->callback([report, flags, &options] {
    if (report->count("--serve") > 0) serve_report(flags->runs, port_of(flags->port), options);
    run_report(*flags, options);
  });
}

}  // namespace octet
