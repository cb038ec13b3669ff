#include "cli/plan_command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/backend.h"
#include "compile/budget.h"
#include "compile/program.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "ir/print.h"
#include "plan/report.h"
#include "train/run_setup.h"

namespace octet {
namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
  std::string config;
  bool buffers = false;
  bool steps = false;
  bool graph = false;
  bool policy = false;
  bool passes = false;
};

Json buffer_json(const Buffer& b) {
  return {{"name", b.name},
          {"role", enum_name(b.role)},
          {"layer", b.layer},
          {"dtype", dtype_name(b.dtype)},
          {"lane", enum_name(b.lane)},
          {"offset", b.offset},
          {"bytes", b.bytes},
          {"first_step", b.first_step},
          {"last_step", b.last_step}};
}

struct PlanFacts {
  const RunConfig& config;
  const ModelSpec& spec;
  const Plan& plan;
  std::vector<std::string> functions;
  int64_t lane_bytes[kLaneCount];  // what a run allocates: each lane as its largest function needs

  // The plan's memory, and what other functions need beyond it as `other`.
  MemoryReport memory() const {
    MemoryReport report = report_memory(plan);
    const int64_t allocated = lane_bytes[0] + lane_bytes[1] + lane_bytes[2];
    report.by_role[static_cast<size_t>(MemoryRole::other)] += allocated - report.peak_bytes;
    report.peak_bytes = allocated;
    return report;
  }
};

Json plan_json(const PlanFacts& facts, const PlanFlags& flags) {
  const MemoryReport memory = facts.memory();
  Json roles = Json::object(), arenas = Json::object(), ops = Json::object();
  for (int role = 0; role < kMemoryRoleCount; ++role) {
    roles[std::string(enum_name(static_cast<MemoryRole>(role)))] =
        memory.by_role[static_cast<size_t>(role)];
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    arenas[std::string(enum_name(static_cast<Lane>(lane)))] = facts.lane_bytes[lane];
  }
  for (const auto& [name, count] : count_ops(facts.plan.graph)) ops[name] = count;
  const int64_t tokens = facts.config.train.batch * facts.config.model.seq;
  Json result = {{"function", facts.plan.graph.name},
                 {"functions", facts.functions},
                 {"recipe", facts.config.recipe.base},
                 {"deterministic", facts.config.train.deterministic},
                 {"peak_bytes", memory.peak_bytes},
                 {"by_role", roles},
                 {"u_bytes", tokens * facts.spec.hidden * 2},
                 {"batch", facts.config.train.batch},
                 {"seq", facts.config.model.seq},
                 {"hidden", facts.spec.hidden},
                 {"params", parameter_count(facts.spec)},
                 {"kept_per_layer_bytes", kept_per_layer(facts.plan.graph)},
                 {"ops", ops},
                 {"near_misses", facts.plan.near_misses},
                 {"arenas", arenas},
                 {"n_steps", facts.plan.steps.size()}};
  if (flags.buffers) {
    result["buffers"] = Json::array();
    for (const Buffer& buffer : facts.plan.buffers)
      result["buffers"].push_back(buffer_json(buffer));
  }
  return result;
}

std::string plan_text(const PlanFacts& facts) {
  const MemoryReport memory = facts.memory();
  const std::vector<int64_t> kept = kept_per_layer(facts.plan.graph);
  const double u = static_cast<double>(facts.config.train.batch * facts.config.model.seq *
                                       facts.spec.hidden * 2);
  std::string text = fmt::format(
      "{} {:.2f} M parameters, recipe {}{}, batch {} x {}, function {}, {} steps\n",
      model_def(facts.spec.kind).name, static_cast<double>(parameter_count(facts.spec)) / 1e6,
      facts.config.recipe.base, facts.config.train.deterministic ? ", deterministic" : "",
      facts.config.train.batch, facts.config.model.seq, facts.plan.graph.name,
      facts.plan.steps.size());
  text += fmt::format("peak {}, at step {}\n", bytes_text(static_cast<double>(memory.peak_bytes)),
                      memory.peak_step);
  for (int role = 0; role < kMemoryRoleCount; ++role) {
    const int64_t bytes = memory.by_role[static_cast<size_t>(role)];
    text += fmt::format("  {:14} {:>12}  {:5.1f} %\n", enum_name(static_cast<MemoryRole>(role)),
                        bytes_text(static_cast<double>(bytes)),
                        100.0 * static_cast<double>(bytes) /
                            static_cast<double>(std::max<int64_t>(memory.peak_bytes, 1)));
  }
  if (!kept.empty()) {
    text += fmt::format("kept for the backward of layer 0: {} ({:.3f} U)\n",
                        bytes_text(static_cast<double>(kept[0])), static_cast<double>(kept[0]) / u);
  }
  for (const auto& [name, count] : count_ops(facts.plan.graph))
    text += fmt::format("  {:6} {}\n", count, name);
  if (!facts.plan.near_misses.empty()) text += "fusions that did not fire:\n";
  for (const std::string& line : facts.plan.near_misses) text += "  " + line + "\n";
  return text;
}

// Each pass of each function, in the order in which they ran.
void print_passes(const Program& program, const GlobalOptions& options) {
  Table table{{"graph", "pass", "nodes before", "nodes after", "ms"}, {}};
  for (const PassRecord& record : program.pass_log()) {
    table.rows.push_back({record.graph, record.pass, fmt::to_string(record.nodes_before),
                          fmt::to_string(record.nodes_after),
                          fmt::format("{:.2f}", record.time_ms)});
  }
  print_table(options, table);
}

void run_plan(const PlanFlags& flags, const GlobalOptions& options) {
  const RunConfig config = load_config(flags.config, options.config_sets()).config;
  Backend backend = open_plan_backend(options, {.deterministic = config.train.deterministic});
  const ModelSpec spec = model_from_config(posix_files(), config);
  const ProgramOptions program_opts = program_options(config, spec);
  if (flags.policy) {
    const Graph forward = program_opts.forward(program_opts.train, ForwardKind::loss);
    write_out(
        resolved_table(find_recipe(program_opts.recipe), forward, program_opts.recipe_options));
    return finish_output();
  }
  Program program(fit_to_budget(program_opts, *backend.catalogue), *backend.catalogue);
  // The largest function of a training step stands for the run.
  const Plan* largest = nullptr;
  std::vector<std::string> functions;
  for (const std::string_view name : program.train_functions()) {
    const Plan& plan = program.plan(name);
    functions.emplace_back(name);
    if (largest == nullptr || plan.peak_bytes() > largest->peak_bytes()) largest = &plan;
  }
  PlanFacts facts{config, spec, *largest, functions, {}};
  program.planned_bytes();
  program.lane_bytes(facts.lane_bytes);
  if (flags.passes) return print_passes(program, options);
  if (flags.steps) {
    write_out(program_text(*largest));
  } else if (flags.graph) {
    write_out(print(largest->graph));
  } else if (options.json || flags.buffers) {
    write_out(json_text(plan_json(facts, flags)));
  } else {
    write_out(plan_text(facts));
  }
  finish_output();
}

}  // namespace

void add_plan_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* plan = app.add_subcommand(
      "plan", "print what a run will do and the memory it takes, without running it");
  plan->add_option("config", flags->config, "YAML file; `octet docs keys` lists its keys")
      ->required()
      ->type_name("CONFIG");
  plan->add_flag("--buffers", flags->buffers,
                 "JSON with every buffer: name, role, layer, dtype, offset, bytes, steps");
  plan->add_flag("--steps", flags->steps, "the straight-line program as text");
  plan->add_flag("--graph", flags->graph, "the lowered graph as text; `octet opt` reads it");
  plan->add_flag("--policy", flags->policy, "the formats of every linear after overrides");
  plan->add_flag("--passes", flags->passes,
                 "what each compiler pass did: nodes before and after, milliseconds");
  plan->callback([flags, &options] { run_plan(*flags, options); });
}

}  // namespace octet
