#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/output_folder.h"
#include "cli/backend.h"
#include "cli/enum_option.h"
#include "compile/lower.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "library/graph_run.h"
#include "library/user_graph.h"
#include "passes/driver.h"

namespace octet {
namespace {

struct OptFlags {
  std::string file;
  std::vector<std::string> passes;
  std::string target;    // empty: none is asked
  std::string run, out;  // files of arrays; empty: none
  bool list = false;
  ParallelOptions parallel;
};

std::string read_graph_text(const std::string& file) {
  if (file != "-") return posix_files().read_stream(file);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void list_passes(const GlobalOptions& options) {
  Table table{{"pass", "what it does"}, {}};
  for (const Pass& pass : all_passes()) {
    table.rows.push_back(cells(pass.name, pass.help));
  }
  print_table(options, table);
}

// Lowered for a back end: what it has no kernel for stands as its decomposition.
Graph lower_for(const std::string& target, const Graph& graph, const GlobalOptions& options) {
  GlobalOptions with_target = options;
  with_target.device = target;
  const Backend backend = open_plan_backend(with_target);
  Graph result = lower(graph, *backend.catalogue);
  verify(result);
  return result;
}

// A row of the table: mean, RMS and range of the numbers that are finite, and how many are not.
std::vector<std::string> output_row(const std::string& name, const TensorType& type,
                                    const NumpyArray& array) {
  double sum = 0, squares = 0, least = INFINITY, most = -INFINITY;
  int64_t n = 0, n_other = 0;
  for (size_t i = 0; i < static_cast<size_t>(type.n_stored()); ++i) {
    const double x = number_at(array, i);
    if (!std::isfinite(x)) {
      ++n_other;
      continue;
    }
    ++n;
    sum += x;
    squares += x * x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  const double count = n > 0 ? static_cast<double>(n) : NAN;
  const auto shown = [&](double x) { return n > 0 ? fmt::format("{:.7g}", x) : "-"; };
  return cells(name, to_string(type), shown(sum / count), shown(std::sqrt(squares / count)),
               shown(least), shown(most), n_other);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return a == b || std::filesystem::equivalent(a, b, missing);
}

// Arrays that were written before may be replaced, but not those that are read, and nothing else.
void check_output(const OptFlags& flags) {
  constexpr const char *kOption = "[opt] --out", *kArchive = "PK";  // of zip files, as .npz are
  for (const std::string& input : {flags.run, flags.file}) {
    if (!is_same_file(flags.out, input)) continue;
    throw Error(ErrorCode::invalid_argument, "{}: expected another file than is read, got '{}'",
                kOption, flags.out);
  }
  check_output_file(posix_files(), kOption, flags.out, kArchive);
}

void run_on_arrays(const OptFlags& flags, const Graph& graph, const GlobalOptions& options) {
  if (flags.parallel.ranks > 1)
    throw Error(ErrorCode::invalid_argument, "--run: expected --ranks 1, got {}",
                flags.parallel.ranks);
  if (!flags.out.empty()) check_output(flags);
  GraphRun run(graph, open_backend(options));
  const NumpyArrays inputs = read_npz(posix_files(), flags.run);
  NumpyArrays outputs;
  try {
    outputs = run(inputs);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    throw Error(ErrorCode::invalid_argument, "{}: {}", flags.run, error.what());
  }
  if (!flags.out.empty()) write_npz(posix_files(), flags.out, outputs);
  Table table{{"output", "type", "mean", "rms", "min", "max", "not_finite"}, {}};
  for (const GraphOutput& output : run.graph().outputs) {
    const TensorType& type = run.graph().type(output.value);
    table.rows.push_back(output_row(output.name, type, outputs[output.name]));
  }
  print_table(options, table);
}

void run_opt(const OptFlags& flags, const CLI::App& command, const GlobalOptions& options) {
  if (flags.list) return list_passes(options);
  const bool cuts = std::ranges::any_of(flags.passes, [](const std::string& pass) {
    return pass == "gather_parameters" || pass == "shard_updates";
  });
  for (const char* flag : {"--ranks", "--shard", "--reduce"})
    expect_flags_read(command, {{flag, cuts, "--passes gather_parameters or shard_updates"}});
  if (flags.file.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "expected a file of graph text, or - for standard "
                "input, got none (see octet opt --help)");
  }
  const std::string name = flags.file == "-" ? "standard input" : flags.file;
  const Graph graph = read_graph(read_graph_text(flags.file), name);
  Graph result = run_passes(graph, flags.passes, flags.parallel);
  if (!flags.run.empty()) return run_on_arrays(flags, result, options);
  if (!flags.target.empty()) result = lower_for(flags.target, result, options);
  write_data(print(result));
}

}  // namespace

void add_opt_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<OptFlags>();
  CLI::App* opt =
      app.add_subcommand("opt", "run passes over a graph: text in, text out; or run the graph");
  opt->add_option("file", flags->file, "graph text; - is standard input")->type_name("FILE.ir");
  opt->add_option("--passes", flags->passes, "names of passes, in order; none: parse and print")
      ->delimiter(',');
  opt->add_option("--target", flags->target,
                  "back end to lower for: a fused op that it has no kernel for is decomposed")
      ->check(one_of({"cpu", "cuda"}));
  CLI::Option* const run =
      opt->add_option("--run", flags->run,
                      "run the graph on the arrays of this file, one for each input, behind the "
                      "passes; values without types are f32")
          ->type_name("IN.npz")
          ->excludes("--target");
  opt->add_option("--out", flags->out, "file for its outputs; without it a table alone")
      ->type_name("OUT.npz")
      ->needs(run);
  opt->add_option("--ranks", flags->parallel.ranks,
                  "ranks that gather_parameters and shard_updates cut for")
      ->check(CLI::Range(1, 1 << 12));
  add_enum_option(*opt, "--shard", flags->parallel.shard, "what they cut (parallel.shard)");
  add_enum_option(*opt, "--reduce", flags->parallel.reduce,
                  "what gradients travel as (parallel.reduce)");
  opt->add_flag("--list", flags->list, "list the passes");
  opt->callback([flags, opt, &options] { run_opt(*flags, *opt, options); });
}

}  // namespace octet
