#include "cli/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/units.h"
#include "cli/backend.h"
#include "cli/own_texts.h"
#include "cli/progress.h"
#include "cli/run_table.h"
#include "cli/signals.h"
#include "config/load.h"
#include "infer/generate.h"
#include "infer/model_source.h"
#include "library/open_backend.h"
#include "passes/precision/recipe.h"
#include "text/tokenizer.h"
#include "train/local_text.h"
#include "train/trainer.h"

namespace octet {
namespace {

constexpr int kWarmUpSteps = 2, kTimedSteps = 3;
constexpr int64_t kFewestSteps = 10, kMaxSteps = 20000;
constexpr int64_t kEvaluations = 4;    // of each run
constexpr double kShareOfTime = 0.92;  // for steps; the rest: data, compiling, saving, the sample
constexpr int64_t kSampleTokens = 240;
constexpr std::string_view kMaker = "compare";
constexpr const char* kSamplePrompt = "#include <";

struct CompareFlags {
  std::vector<std::string> recipes = {"fp32", "bf16", "coat"};
  std::vector<std::string> data;
  double seconds = 120;
  int64_t steps = 0;  // 0: as many as the time allows
  std::string out = "runs/compare";
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

RunConfig compare_config(const CompareFlags& flags, const std::string& recipe, int64_t steps,
                         const GlobalOptions& options) {
  RunConfig config;
  config.model.hidden = 256;
  config.model.layers = 4;
  config.model.heads = 4;
  config.model.ffn = 704;
  config.recipe.base = recipe;
  config.optim.lr = 2e-3;
  config.optim.warmup = std::min<int64_t>(50, steps / 5);
  config.data.train = flags.data;
  config.train.steps = steps;
  config.train.batch = 4;
  config.train.seed = options.seed.value_or(1);
  config.train.eval_bytes = 32768;
  config.train.eval_every = std::max<int64_t>(1, (steps + kEvaluations - 1) / kEvaluations);
  config.train.log_every = std::max<int64_t>(1, steps / 10);
  config.train.save_every = 0;
  config.train.keep = 1;
  config.out = join_path(flags.out, recipe);
  resolve(config);
  return config;
}

struct StepTime {
  double step = 0, evaluation = 0;  // seconds
};

StepTime time_steps(const RunConfig& config, const Dataset& data, const TrainerMachine& machine) {
  Trainer trainer(config, data, machine);
  std::vector<double> seconds;
  seconds.reserve(kWarmUpSteps + kTimedSteps);
  for (int i = 0; i < kWarmUpSteps + kTimedSteps; ++i) {
    seconds.push_back(trainer.step().time_ms / 1000);
  }
  std::sort(seconds.begin() + kWarmUpSteps, seconds.end());
  const auto start = Clock::now();
  trainer.evaluate();
  return {seconds[kWarmUpSteps + kTimedSteps / 2], seconds_since(start)};
}

int64_t choose_steps(const CompareFlags& flags, const std::vector<StepTime>& times,
                     double seconds_spent) {
  if (flags.steps > 0) return flags.steps;
  StepTime sum;
  for (const StepTime& time : times) {
    sum.step += time.step;
    sum.evaluation += time.evaluation;
  }
  const double left = kShareOfTime * flags.seconds - seconds_spent -
                      static_cast<double>(kEvaluations) * sum.evaluation;
  return std::clamp(static_cast<int64_t>(left / sum.step), kFewestSteps, kMaxSteps);
}

std::string sample_text(const std::string& run, const TrainerMachine& machine, uint32_t seed) {
  const ModelSource source = find_model_source(machine.files, run);
  const auto tokenizer = make_tokenizer(machine.files, source.tokenizer);
  const Prompt prompt{.tokens = tokenizer->encode(kSamplePrompt),
                      .sampling = {.temperature = 0.6, .seed = seed}};
  const GenerateOptions options{.max_tokens = kSampleTokens};
  const auto model = make_text_model(
      source, {.capacity = std::min(source.seq, std::ssize(prompt.tokens) + options.max_tokens)},
      {machine.files, machine.device, machine.catalogue});
  return kSamplePrompt + generate(*model, *tokenizer, {prompt}, options).front().text;
}

// Only what an earlier comparison left gives way to this one.
StartMode start_mode(Files& files, const std::string& run) {
  if (files.entry_kind(run) == EntryKind::link) {
    throw Error(ErrorCode::invalid_argument,
                "--out: expected a folder of compare's, got the link {}", run);
  }
  const bool is_own = files.exists(run) && maker_of_run(files, run) == kMaker;
  return is_own ? StartMode::overwrite : StartMode::fresh;
}

void check_folders(const CompareFlags& flags, Files& files) {
  for (const std::string& recipe : flags.recipes) {
    const std::string run = join_path(flags.out, recipe);
    const StartMode mode = start_mode(files, run);
    check_run_folder(files, run, mode);
  }
}

int64_t choose_number_of_steps(const CompareFlags& flags, const GlobalOptions& options,
                               const Dataset& data, const TrainerMachine& machine,
                               Clock::time_point start) {
  if (flags.steps > 0) return flags.steps;
  const Log log = make_log(options);
  std::vector<StepTime> times;
  for (const std::string& recipe : flags.recipes) {
    times.push_back(time_steps(compare_config(flags, recipe, kMaxSteps, options), data, machine));
    log.info("{}: {:.0f} ms a step", recipe, times.back().step * 1000);
  }
  return choose_steps(flags, times, seconds_since(start));
}

void print_result(const GlobalOptions& options, Table table, const std::string& sample) {
  if (options.json) {
    table.columns.emplace_back("sample");
    for (auto& row : table.rows) row.emplace_back();
    table.rows.back().back() = sample;
    print_table(options, table);
    return;
  }
  print_table(options, table);
  write_out(
      fmt::format("\nA sample of the last model, after \"{}\":\n\n{}\n", kSamplePrompt, sample));
}

void run_compare(CompareFlags flags, const GlobalOptions& options) {
  const auto start = Clock::now();
  const Log log = make_log(options);
  const bool is_named = !flags.data.empty();
  if (!is_named) flags.data = own_texts();
  for (const std::string& recipe : flags.recipes) find_recipe(recipe);
  check_folders(flags, posix_files());
  const RunConfig first = compare_config(flags, flags.recipes.front(), kMaxSteps, options);
  Backend backend = open_backend(
      options, {.deterministic = first.train.deterministic, .arithmetic = first.train.arithmetic});
  const auto auditor = audit_backend(*backend.catalogue, first.train.audit);
  const TrainerMachine machine{.files = posix_files(),
                               .device = *backend.device,
                               .catalogue = *backend.catalogue,
                               .auditor = auditor ? &*auditor : nullptr};
  const Dataset data = collect_local_text(
      machine.files,
      {.paths = flags.data, .origin = is_named ? PathOrigin::named : PathOrigin::suggested});
  log.info("{} files of text: {} to train on, {} for validation; {}", data.n_sources,
           bytes_text(static_cast<double>(data.train.n_tokens())),
           bytes_text(static_cast<double>(data.val.n_tokens())), machine.device.info().name);
  const int64_t steps = choose_number_of_steps(flags, options, data, machine, start);
  Table table = run_table();
  for (const std::string& recipe : flags.recipes) {
    const RunConfig config = compare_config(flags, recipe, steps, options);
    reset_peak_resident_bytes();
    Progress progress(options, recipe + "  ");
    TrainHooks hooks = progress.hooks();
    hooks.maker = kMaker;
    StopDeferral deferral;
    hooks.stop = &stop_wish();
    hooks.before_step = [&](int64_t) { deferral.begin(StopDeferral::Tells::yes); };
    Trainer trainer(config, data, machine);
    if (table.rows.empty()) {
      log.info("a Llama of {:.2f} M parameters, {} steps of {} tokens with each recipe",
               static_cast<double>(parameter_count(trainer.spec())) / 1e6, steps,
               config.train.batch * config.model.seq);
    }
    const TrainResult result = trainer.run(start_mode(machine.files, config.out), hooks);
    table.rows.push_back(run_row(options, recipe, result));
    if (const int signal = stop_wish(); signal != 0) throw ExitStatus{128 + signal};
  }
  print_result(
      options, table,
      sample_text(join_path(flags.out, flags.recipes.back()), machine, options.seed.value_or(1)));
}

}  // namespace

void add_compare_command(CLI::App& app, GlobalOptions& options) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* compare = app.add_subcommand(
      "compare", "train one small model with each recipe on text that the machine has");
  compare->add_option("--recipes,--recipe", flags->recipes, "recipes, in order")->delimiter(',');
  compare->add_option("--seconds", flags->seconds, "time for all together")
      ->check(CLI::PositiveNumber);
  compare->add_option("--steps", flags->steps, "of each recipe; 0: what the time allows")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}));
  compare
      ->add_option(
          "--data", flags->data,
          "text files and folders; without it the project's own, its documents and /usr/include")
      ->delimiter(',');
  compare->add_option("--out", flags->out, "folder of the runs, one folder a recipe");
  compare->callback([flags, &options] { run_compare(*flags, options); });
}

}  // namespace octet
