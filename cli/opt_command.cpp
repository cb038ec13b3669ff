#include "cli/commands.h"

#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "cli/backend.h"
#include "cli/enum_option.h"
#include "compile/lower.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/driver.h"

namespace octet {
namespace {

struct OptFlags {
  std::string file;
  std::vector<std::string> passes;
  std::string target;  // empty: none is asked
  bool list = false;
  ParallelOptions parallel;
};

std::string read_graph_text(const std::string& file) {
  if (file != "-") return posix_files().read_stream(file);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// The verifier blames us; a graph that came from a file is the user's.
void verify_input(const Graph& graph, const std::string& file) {
  try {
    verify(graph);
  } catch (const Error& error) {
    throw Error(ErrorCode::invalid_argument, "{}: {}", file, error.what());
  }
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

void run_opt(const OptFlags& flags, const GlobalOptions& options) {
  if (flags.list) return list_passes(options);
  if (flags.file.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "expected a file of graph text, or - for standard "
                "input, got none (see octet opt --help)");
  }
  const std::string name = flags.file == "-" ? "standard input" : flags.file;
  const Graph graph = parse_graph(read_graph_text(flags.file), name);
  verify_input(graph, name);
  Graph result = run_passes(graph, flags.passes, flags.parallel);
  if (!flags.target.empty()) result = lower_for(flags.target, result, options);
  write_data(print(result));
}

}  // namespace

void add_opt_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<OptFlags>();
  CLI::App* opt = app.add_subcommand("opt", "run passes over a graph: text in, text out");
  opt->add_option("file", flags->file, "graph text; - is standard input")->type_name("FILE.ir");
  opt->add_option("--passes", flags->passes, "names of passes, in order; none: parse and print")
      ->delimiter(',');
  opt->add_option("--target", flags->target,
                  "back end to lower for: a fused op that it has no kernel for is decomposed")
      ->check(one_of({"cpu", "cuda"}));
  opt->add_option("--ranks", flags->parallel.ranks,
                  "ranks that gather_parameters and shard_updates cut for")
      ->check(CLI::Range(1, 1 << 12));
  add_enum_option(*opt, "--shard", flags->parallel.shard, "what they cut (parallel.shard)");
  add_enum_option(*opt, "--reduce", flags->parallel.reduce,
                  "what gradients travel as (parallel.reduce)");
  opt->add_flag("--list", flags->list, "list the passes");
  opt->callback([flags, &options] { run_opt(*flags, options); });
}

}  // namespace octet
