#include "cli/commands.h"

#include <fmt/format.h>

#include <memory>

#include "base/files.h"
#include "cli/report_page.h"

namespace octet {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out = "report.html";
};

// With --json for programs: plain numbers, and no value where it is not finite.
Table summary_table(const GlobalOptions& options, const std::vector<RunData>& runs) {
  Table table{{"run", "recipe", "steps", "train_loss", "val_loss", "best_val_loss", "tokens_per_s",
               "mem_bytes", "state_bytes", "skipped", "spikes"},
              {}};
  const auto loss = [](double x) { return x == x ? loss_number(x) : std::string(); };
  for (const RunData& run : runs) {
    const RunSummary s = summarize(run);
    table.rows.push_back(cells(
        run.name, run.recipe, s.n_steps, loss(s.train_loss), loss(s.val_loss),
        loss(s.best_val_loss), fmt::format("{:.0f}", s.tokens_per_s),
        bytes_cell(options, s.mem_bytes),
        run.state_bytes ? bytes_cell(options, *run.state_bytes) : "", s.n_skipped, run.n_spikes));
  }
  return table;
}

void run_report(const ReportFlags& flags, const GlobalOptions& options) {
  Files& files = posix_files();
  const Log log = make_log(options);
  std::vector<RunData> runs;
  for (const std::string& path : flags.runs) runs.push_back(read_run(files, path, log));
  const std::string page = report_page(runs);
  write_output(files, flags.out, [&](FileWriter& out) { out.write(as_bytes(page)); });
  print_table(options, summary_table(options, runs));
  log.info("{}: open it in a browser", flags.out);
}

}  // namespace

void add_report_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* report =
      app.add_subcommand("report", "curves, results and differences of runs as one HTML page");
  report->add_option("runs", flags->runs, "folders of runs")->required()->type_name("RUN");
  report->add_option("--out", flags->out, "the page")->type_name("FILE.html");
  report->callback([flags, &options] { run_report(*flags, options); });
}

}  // namespace octet
