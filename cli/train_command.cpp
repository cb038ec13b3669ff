#include "cli/train_command.h"

#include <fmt/format.h>

#include <memory>

#include "backends/cpu/isa.h"
#include "base/error.h"
#include "cli/backend.h"
#include "cli/profile_option.h"
#include "cli/progress.h"
#include "cli/run_table.h"
#include "cli/signals.h"
#include "cli/strict_flag.h"
#include "cli/tokenize_progress.h"
#include "config/load.h"
#include "infer/model_source.h"
#include "infer/model_spec.h"
#include "train/finetune.h"
#include "train/resume.h"
#include "train/run_length.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace octet {
namespace {

struct TrainFlags {
  std::string config;
  FinetuneOptions finetune;  // without a configuration file
  bool resume = false, overwrite = false, strict = false, streams = false;
  std::string profile_steps;
  std::optional<int64_t> telemetry;
};

std::string description(const RunConfig& config, const ModelSpec& spec, const Dataset& data) {
  return fmt::format(
      "{}, {:.2f} M parameters, recipe {}{}, {} training and {} validation tokens, {}",
      model_def(spec.kind).name, static_cast<double>(parameter_count(spec)) / 1e6,
      config.recipe.base, config.train.deterministic ? ", deterministic" : "",
      data.train.n_tokens(), data.val.n_tokens(), config.out);
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
  if (options.device != "cpu" || options.isa != "auto") return machine;
  const auto recorded = cpu::isa_from_name(recorded_isa(posix_files(), config.out));
  if (!recorded || *recorded == cpu::detect_isa()) return machine;
  const Log log = make_log(options);
  if (*recorded > cpu::detect_isa()) {
    log.warning(
        "the checkpoint was computed with --isa {}, which this machine lacks: runs that move "
        "between machines keep their bits with --isa {} from the beginning",
        cpu::isa_name(*recorded), cpu::isa_name(cpu::detect_isa()));
    return machine;
  }
  machine.isa = cpu::isa_name(*recorded);
  log.info("computing with --isa {} as the checkpoint did (this machine has {}, with other bits)",
           machine.isa, cpu::isa_name(cpu::detect_isa()));
  return machine;
}

std::string isa_of(const GlobalOptions& machine) {
  if (machine.device != "cpu") return "";
  return machine.isa == "auto" ? std::string(cpu::isa_name(cpu::detect_isa())) : machine.isa;
}

LoadedConfig configuration(const TrainFlags& flags, const GlobalOptions& options) {
  const bool has_file = !flags.config.empty();
  FinetuneOptions finetune = flags.finetune;
  if (has_file == !finetune.model.empty() || finetune.model.empty() != finetune.data.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "train: expected a configuration file, or --model DIR with --data FILE, got {}",
                has_file                 ? "both"
                : finetune.model.empty() ? "no model"
                                         : "no data");
  }
  std::vector<std::string> sets = options.config_sets();
  if (flags.telemetry) sets.push_back(fmt::format("train.telemetry={}", *flags.telemetry));
  LoadedConfig loaded =
      has_file ? load_config(flags.config, sets) : finetune_config(posix_files(), finetune, sets);
  take_tokenizer_of_model(posix_files(), loaded);
  return loaded;
}

// What a run without a configuration file does, where nobody said it.
std::string settled_text(const RunConfig& config) {
  return fmt::format(
      "rows of {} tokens, {} a step; {} epochs are {} steps; learning rate {:g}, {} after {} steps "
      "of warm-up; an evaluation every {} steps, the run ends after {} without a lower loss "
      "(all keys: {}/config.yaml)",
      config.model.seq, config.train.batch * config.train.accumulate, config.train.epochs,
      config.train.steps, config.optim.lr, config.optim.schedule, config.optim.warmup,
      config.train.eval_every, config.train.patience, config.out);
}

// Each step's line of metrics.jsonl to standard output, too.
void stream_steps(TrainHooks& hooks) {
  hooks.on_step = [shown = hooks.on_step](const StepReport& report) {
    if (shown) shown(report);
    write_out(metrics_json(report) + "\n");
    flush_output();
  };
}

void run_train(const TrainFlags& flags, const GlobalOptions& options) {
  LoadedConfig loaded = configuration(flags, options);
  const RunConfig& config = loaded.config;
  const GlobalOptions machine = flags.resume ? machine_options(options, config) : options;
  std::optional<StepRange> profile_steps;
  if (!flags.profile_steps.empty()) profile_steps = parse_step_range(flags.profile_steps);
  Files& files = posix_files();
  const StartMode mode = flags.resume      ? StartMode::resume
                         : flags.overwrite ? StartMode::overwrite
                                           : StartMode::fresh;
  check_run_folder(files, config.out, mode);
  Backend backend = open_backend(machine, {.deterministic = config.train.deterministic});
  ModelSpec spec = model_from_config(files, config);
  if (!config.model.path.empty()) {
    tell_unknown_keys(files, config.model.path, make_log(options), unknown_keys(flags.strict));
  }
  const Dataset data = open_run_data(files, config, spec,
                                     {.log = make_log(options),
                                      .threads = options.threads,
                                      .on_progress = tokenize_painter(options)});
  flags.config.empty() ? fit_to_data(loaded, data) : settle_length(loaded, data);
  spec = model_from_config(files, config);  // of the settled sequence
  Progress progress(options, "");
  TrainHooks hooks = progress.hooks();
  hooks.stop = &stop_wish();
  if (flags.streams) stream_steps(hooks);
  hooks.log.info("{}", description(config, spec, data));
  if (flags.config.empty()) hooks.log.info("{}", settled_text(config));
  for (const DeviceLibrary& library : backend.device->libraries()) {
    if (!library.problem.empty()) hooks.log.warning("{}: {}", library.name, library.problem);
  }
  Trainer trainer(config, data, {files, *backend.device, *backend.catalogue, isa_of(machine)});
  std::optional<StepProfiler> profiler;
  if (profile_steps) profiler.emplace(*profile_steps, trainer.engine());
  StopDeferral deferral;
  hooks.before_step = [&](int64_t step) {
    deferral.begin();  // from the first step on there is something to save
    if (profiler) profiler->before_step(step);
  };
  const TrainResult result = trainer.run({mode, loaded.source}, hooks);
  hooks.log.info("{} step {}", result.signal == 0 ? "done at" : "interrupted and saved at",
                 result.step);
  if (profiler) write_profile(*profiler, config, backend, options, hooks.log);
  Table table = run_table();
  table.rows.push_back(run_row(options, config.recipe.base, result));
  print_table(options, table);
  finish_output();
  if (result.signal != 0) throw ExitStatus{128 + result.signal};
}

}  // namespace

void add_train_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* train = app.add_subcommand(
      "train", "train a model as a configuration file says, or fine-tune one on a file of data");
  train->add_option("config", flags->config, "YAML file; `octet docs keys` lists its keys")
      ->type_name("CONFIG");
  const std::string group = "Fine-tuning without a configuration file";
  FinetuneOptions& finetune = flags->finetune;
  train->add_option("--model", finetune.model, "folder of the model to start from (Hugging Face)")
      ->type_name("DIR")
      ->group(group);
  train
      ->add_option("--data", finetune.data,
                   "conversations (.json, .jsonl), text or token shards; may be repeated")
      ->type_name("FILE")
      ->group(group);
  train->add_option("--recipe", finetune.recipe, "precision recipe; without it bf16")->group(group);
  train->add_option("--out", finetune.out, "folder of the run; without it runs/finetune")
      ->type_name("RUN")
      ->group(group);
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
  train->add_flag("--stream", flags->streams,
                  "each step's metrics on standard output as they come, a JSON object a line");
  add_strict_flag(*train, flags->strict);
  train->callback([flags, &options] { run_train(*flags, options); });
}

}  // namespace octet
