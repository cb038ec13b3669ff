#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/named_enum.h"
#include "cli/backend.h"
#include "cli/finetune_flags.h"
#include "cli/launch.h"
#include "cli/launched_ranks.h"
#include "cli/model_flags.h"
#include "cli/profile_option.h"
#include "cli/progress.h"
#include "cli/rank_agreement.h"
#include "cli/rank_processes.h"
#include "cli/run_table.h"
#include "cli/signals.h"
#include "comm/local.h"
#include "config/load.h"
#include "config/report.h"
#include "infer/model_source.h"
#include "library/open_backend.h"
#include "train/open_run.h"
#include "train/rank_log.h"
#include "train/resume.h"
#include "train/row_data.h"
#include "train/run.h"

namespace octet {
namespace {

constexpr std::string_view kIfLost = "; `--resume` goes on";

struct TrainFlags : FinetuneFlags {
  bool resume = false, overwrite = false, strict = false, streams = false;
  std::string profile_steps;
  std::optional<int64_t> telemetry, ranks;
  std::optional<int> device_index;        // that a launcher gave this rank
  std::optional<int64_t> launched_ranks;  // that it started, with or without --ranks
};

std::string description(const RunConfig& config, const ModelSpec& spec, const Dataset& data) {
  return fmt::format("{}, {:.2f} M parameters, recipe {}{}, {}, {}", model_def(spec.kind).name,
                     static_cast<double>(parameter_count(spec)) / 1e6, config.recipe.base,
                     config.train.deterministic ? ", deterministic" : "", amount_text(data),
                     config.out);
}

// With --json the only result on standard output is the run's own table.
void write_profile(const StepProfiler& profiler, const RunConfig& config, Backend& backend,
                   const GlobalOptions& options, const Log& log) {
  profiler.write(posix_files(), join_path(config.out, "trace.json"), log);
  if (!profiler.has_seen_steps()) return;
  const std::string table = table_text(profiler.table(backend));
  if (!options.json) return write_out(table + "\n");
  if (!options.quiet) write_err(table + "\n");
}

// --isa auto goes on with the instruction set of the checkpoint, where this machine has it.
GlobalOptions machine_options(const GlobalOptions& options, const RunConfig& config) {
  GlobalOptions machine = options;
  machine.isa = resumed_request({.device = options.device, .isa = options.isa},
                                recorded_isa(posix_files(), config.out), make_log(options))
                    .isa;
  return machine;
}

LoadedConfig configuration(const TrainFlags& flags, const GlobalOptions& options) {
  std::vector<std::string> sets = options.config_sets();
  const std::vector<std::string> given = sets;
  const std::tuple<const char*, const char*, std::optional<int64_t>> numbers[] = {
      {"--telemetry", "train.telemetry", flags.telemetry},
      {"--ranks", "parallel.ranks", flags.ranks}};
  for (const auto& [flag, key, value] : numbers) {
    if (!value) continue;
    expect_no_set(fmt::format("{} {}", flag, *value), key, given);
    sets.push_back(fmt::format("{}={}", key, *value));
  }
  if (flags.launched_ranks) sets.push_back(fmt::format("parallel.ranks={}", *flags.launched_ranks));
  LoadedConfig loaded = configuration_of(flags, sets, NeedsData::yes, make_log(options));
  take_tokenizer_of_model(posix_files(), loaded);
  return loaded;
}

// Settings of a run without a configuration file, where nobody said them.
std::string settled_text(const RunConfig& config, const ModelSpec& spec) {
  const std::string epochs =
      config.train.epochs > 0 ? fmt::format("{} epochs are ", config.train.epochs) : "";
  const std::string rows =
      model_def(spec.kind).reads_text
          ? fmt::format("rows of {} tokens, {} a step", config.model.seq, config.step_rows())
          : fmt::format("{} pictures a step", config.step_rows());
  return fmt::format(
      "{}; {}{} steps; learning rate {:g}, {} after {} steps of warm-up; "
      "an evaluation every {} steps, the run ends after {} without a lower loss "
      "(all keys: {}/config.yaml)",
      rows, epochs, config.train.steps, config.optim.lr, enum_name(config.optim.schedule),
      config.optim.warmup, config.train.eval_every, config.train.patience, config.out);
}

// A run as its command line asks for it, with its data open.
struct TrainRun {
  const TrainFlags& flags;
  const GlobalOptions& options;
  const GlobalOptions& machine;
  const LoadedConfig& loaded;
  const Dataset& data;
  StartMode mode;
  std::optional<StepRange> profile_steps = {};

  TrainResult to_end(Backend& backend, Group* group, const TrainHooks& hooks) const {
    const auto auditor = audit_backend(*backend.catalogue, loaded.config.train.audit);
    return Run(loaded.config, data,
               {posix_files(), *backend.device, *backend.catalogue, isa_of(machine), group,
                /*reads_ahead=*/{}, auditor ? &*auditor : nullptr},
               {mode, loaded.source}, hooks)
        .to_end();
  }
};

TrainResult train(const TrainRun& run, Backend& backend, Group* group, TrainHooks hooks) {
  StopDeferral deferral;
  const auto tells =
      group == nullptr || group->rank() == 0 ? StopDeferral::Tells::yes : StopDeferral::Tells::no;
  std::optional<StepProfiler> profiler;
  hooks.on_trainer = [&](Trainer& trainer) {
    if (run.profile_steps && trainer.is_root())
      profiler.emplace(*run.profile_steps, trainer.engine());
  };
  hooks.on_end = [&, log = hooks.log](const TrainResult& result) {
    if (profiler && !result.was_finished)
      write_profile(*profiler, run.loaded.config, backend, run.options, log);
    profiler.reset();
  };
  hooks.before_step = [&](int64_t step) {
    deferral.begin(tells);  // from the first step on there is something to save
    if (profiler) profiler->before_step(step);
  };
  TrainResult result = run.to_end(backend, group, hooks);
  if (result.was_finished) return result;
  hooks.log.info("{} step {}", result.signal == 0 ? "done at" : "interrupted and saved at",
                 result.step);
  return result;
}

// Devices of this process's ranks, rank 0 first; no groups where there is one. On the CPU ranks are
// threads, which share the cores; on GPUs a process each, which `process` is then the rank of.
struct Devices {
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<Backend> backends;
};

Devices open_devices(const TrainFlags& flags, const RunConfig& config, const GlobalOptions& options,
                     Group* process) {
  Devices devices;
  const KernelNeeds needs{.deterministic = config.train.deterministic,
                          .device_index = flags.device_index,
                          .arithmetic = config.train.arithmetic};
  if (config.parallel.ranks == 1 || process != nullptr) {
    devices.backends.push_back(open_backend(options, needs, process));
    if (process != nullptr) join_devices(devices.backends[0], *process, options, config.parallel);
    return devices;
  }
  devices.groups = local_groups(static_cast<int>(config.parallel.ranks));
  const GlobalOptions shared = options_of_rank(options, config.parallel.ranks);
  for (const auto& group : devices.groups)
    devices.backends.push_back(open_backend(shared, needs, group.get()));
  return devices;
}

// Rank 0 is the caller's thread, and prints.
TrainResult train_on(Devices& devices, const TrainRun& run, Group* process,
                     const TrainHooks& hooks) {
  if (devices.groups.empty()) return train(run, devices.backends[0], process, hooks);
  TrainResult result;
  run_local_ranks(devices.groups, [&](Group& group) {
    Backend& backend = devices.backends[static_cast<size_t>(group.rank())];
    if (group.rank() == 0) {
      result = train(run, backend, &group, hooks);
    } else {
      RankLog log(posix_files(), run.loaded.config.out, group.rank());
      run.to_end(backend, &group, {.log = log.log()});
    }
  });
  return result;
}

void tell_about(const TrainRun& run, const ModelSpec& spec, const Log& log) {
  log.info("{}", description(run.loaded.config, spec, run.data));
  if (run.flags.config.empty()) log.info("{}", settled_text(run.loaded.config, spec));
}

// Each step's line of metrics.jsonl to standard output, too.
void stream_steps(TrainHooks& hooks) {
  hooks.on_step = [shown = hooks.on_step](const StepReport& report) {
    if (shown) shown(report);
    write_out(metrics_json(report) + "\n");
    flush_output();
  };
}

// Ranks of several processes: one program, one configuration, one folder.
void check_agreement(Group& group, const GlobalOptions& options, const RunConfig& config,
                     StartMode mode) {
  Facts facts = {program_fact(),
                 {"--device", options.device},
                 {"start", mode == StartMode::resume      ? "--resume"
                           : mode == StartMode::overwrite ? "--overwrite"
                                                          : "anew"}};
  for (const auto& fact : config_values(config)) facts.push_back(fact);
  expect_same(group, facts);
  expect_shared_folder(group, posix_files(), config.out);
}

// `process`: the rank that this process is; nullptr where it is all of them.
void run_ranks(const TrainFlags& flags, const GlobalOptions& options, LoadedConfig loaded,
               Group* process) {
  const bool is_root = process == nullptr || process->rank() == 0;
  std::optional<StepRange> profile_steps;
  if (!flags.profile_steps.empty()) profile_steps = parse_step_range(flags.profile_steps);
  Files& files = posix_files();
  const StartMode mode = flags.resume      ? StartMode::resume
                         : flags.overwrite ? StartMode::overwrite
                                           : StartMode::fresh;
  if (is_root) check_run_folder(files, loaded.config.out, mode);
  if (process != nullptr) check_agreement(*process, options, loaded.config, mode);
  const GlobalOptions machine = flags.resume ? machine_options(options, loaded.config) : options;
  if (process != nullptr) expect_same(*process, {{"--isa", isa_of(machine)}});
  if (flags.resume) keep_what_resumes(files, loaded, make_log(options));
  Devices devices = open_devices(flags, loaded.config, machine, process);
  const OpenRun opened = open_run(files, std::move(loaded),
                                  {.data = {.log = make_log(options),
                                            .threads = options.threads,
                                            .on_progress = tokenize_painter(options)},
                                   .unknown_keys = unknown_keys(flags.strict),
                                   .fits_to_data = flags.config.empty(),
                                   .resumes = flags.resume,
                                   .processes = process});
  const RunConfig& config = opened.loaded.config;
  Progress progress(options, "");
  std::optional<RankLog> rank_log;
  if (!is_root) rank_log.emplace(files, config.out, process->rank());
  TrainHooks hooks = is_root ? progress.hooks() : TrainHooks{.log = rank_log->log()};
  hooks.stop = &stop_wish();
  if (flags.streams && is_root) stream_steps(hooks);
  const TrainRun run{flags, options, machine, opened.loaded, opened.data, mode, profile_steps};
  if (is_root) tell_about(run, opened.spec, hooks.log);
  for (const DeviceLibrary& library : devices.backends[0].device->libraries()) {
    if (!library.problem.empty()) hooks.log.warning("{}: {}", library.name, library.problem);
  }
  const TrainResult result = train_on(devices, run, process, hooks);
  if (!is_root) return;
  Table table = run_table(result.unit);
  table.rows.push_back(run_row(options, config.recipe.base, result));
  if (result.was_finished) {
    table.columns.push_back("state");
    table.rows.back().push_back(
        fmt::format("finished: step {} of {}", result.step, config.train.steps));
  }
  print_table(options, table);
  finish_output();
  if (result.signal != 0) throw ExitStatus{128 + result.signal};
}

// The launcher says how many ranks there are, and nobody says otherwise.
void expect_launched(const Launch& launch, int64_t ranks, std::string_view source) {
  if (ranks == launch.size) return;
  throw Error(ErrorCode::invalid_argument,
              "parallel.ranks: expected {}, as many ranks as {} started, or no such key, got {} "
              "({})",
              launch.size, launch.launcher, ranks, source);
}

LoadedConfig launched_configuration(TrainFlags flags, const GlobalOptions& options,
                                    const Launch& launch) {
  const LoadedConfig asked = configuration(flags, options);
  const std::string& source = asked.source.at("parallel.ranks");
  if (source != "default") expect_launched(launch, asked.config.parallel.ranks, source);
  flags.launched_ranks = launch.size;
  return configuration(flags, options);
}

// By the command line alone, whose last word counts. All ranks have it: none needs the others to
// refuse it.
void expect_launched(const Launch& launch, const TrainFlags& flags, const GlobalOptions& options) {
  if (flags.ranks) return expect_launched(launch, *flags.ranks, "--ranks");
  constexpr std::string_view kKey = "parallel.ranks=";
  int64_t ranks = launch.size;
  for (const std::string& set : options.sets) {
    if (set.starts_with(kKey))
      std::from_chars(set.data() + kKey.size(), set.data() + set.size(), ranks);
  }
  expect_launched(launch, ranks, "--set");
}

// Ranks of one host share its cores; those that the launcher gave cores of their own do not.
void run_rank(TrainFlags flags, GlobalOptions options, LoadedConfig loaded, const Launch& launch,
              Group& group) {
  const RankHosts hosts = find_hosts(group);
  flags.device_index = launch.local_rank.value_or(hosts.local_rank);
  options.quiet = options.quiet || group.rank() > 0;
  if (options.threads == 0) options.threads = std::max(1, usable_cores() / hosts.n_on_cores);
  run_ranks(flags, options, std::move(loaded), &group);
}

// Ranks of this process, or of processes that it starts.
int run_own_ranks(const TrainFlags& flags, const GlobalOptions& options) {
  const LoadedConfig loaded = configuration(flags, options);
  const auto n_ranks = static_cast<int>(loaded.config.parallel.ranks);
  if (options.device == "cpu" || n_ranks == 1) {
    run_ranks(flags, options, loaded, nullptr);
    return 0;
  }
  const GlobalOptions of_rank = options_of_rank(options, n_ranks);
  const auto train_as = [&](Group& group, const Launch& launch) {
    run_rank(flags, of_rank, loaded, launch, group);
  };
  return run_rank_processes(n_ranks, train_as, kIfLost);
}

int run_launched(const TrainFlags& flags, const GlobalOptions& options, const Launch& launch) {
  expect_launched(launch, flags, options);
  const auto train_as = [&](Group& group) {
    run_rank(flags, options, launched_configuration(flags, options, launch), launch, group);
  };
  return run_launched_rank(launch, train_as, kIfLost);
}

void run_train(const TrainFlags& flags, const GlobalOptions& options) {
  const auto launch = find_launch(::getenv);
  const int code = launch ? run_launched(flags, options, *launch) : run_own_ranks(flags, options);
  if (code != 0) throw ExitStatus{code};
}

}  // namespace

void add_train_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* train = app.add_subcommand(
      "train", "train a model as a configuration file says, or fine-tune one on a file of data");
  add_finetune_flags(*train, *flags, NeedsData::yes);
  CLI::Option* resume = train->add_flag(
      "--resume", flags->resume,
      "go on from the newest whole checkpoint in `out`, or start where there is none");
  train
      ->add_flag("--overwrite", flags->overwrite,
                 "begin anew in the place of the run in `out`, whose checkpoints are removed")
      ->excludes(resume);
  train
      ->add_option("--profile-steps", flags->profile_steps,
                   "time every kernel of these steps: a table, and trace.json in `out`")
      ->type_name("FIRST:LAST");
  train
      ->add_option("--telemetry", flags->telemetry,
                   "sample what GEMMs and updates read every so many steps, into telemetry.jsonl "
                   "(train.telemetry); `octet inspect RUN` shows the worst")
      ->type_name("STEPS");
  train
      ->add_option("--ranks", flags->ranks,
                   "devices that train together (parallel.ranks); a process for each GPU, "
                   "threads of this process on the CPU")
      ->type_name("N")
      ->check(as_key("parallel.ranks"));
  train->add_flag("--stream", flags->streams,
                  "each step's metrics on standard output as they come, a JSON object a line");
  add_strict_flag(*train, flags->strict);
  train->callback([flags, &options] { run_train(*flags, options); });
}

}  // namespace octet
