#include "octet/training.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "config/report.h"
#include "infer/model_source.h"
#include "library/public_types.h"
#include "train/go_on.h"
#include "train/open_run.h"
#include "train/resume.h"
#include "train/run.h"

namespace octet {
namespace {

LoadedConfig load(const TrainingConfig& config) {
  if (config.file.empty() == config.text.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "[training] expected a configuration's file or its text, got {}",
                config.file.empty() ? "neither" : "both");
  }
  LoadedConfig loaded = config.file.empty() ? parse_config(config.text, "config", config.sets)
                                            : load_config(config.file, config.sets);
  take_tokenizer_of_model(posix_files(), loaded);
  settle_adapters(posix_files(), loaded);
  if (const int64_t ranks = loaded.config.parallel.ranks; ranks != 1) {
    throw Error(ErrorCode::invalid_argument,
                "parallel.ranks: expected 1, got {}: several are run by `octet train` alone",
                ranks);
  }
  return loaded;
}

StartMode mode_of(TrainingStart start) {
  return start == TrainingStart::resume      ? StartMode::resume
         : start == TrainingStart::overwrite ? StartMode::overwrite
                                             : StartMode::fresh;
}

TrainingStep step_of(const StepReport& report) {
  return {.step = report.step,
          .steps = report.steps,
          .loss = report.loss,
          .grad_norm = report.grad_norm,
          .lr = report.lr,
          .tokens = report.tokens,
          .tokens_per_s = report.tokens_per_s,
          .time_ms = report.time_ms,
          .seconds_left = report.seconds_left,
          .memory_bytes = report.mem_bytes,
          .is_skipped = report.skipped,
          .has_overflowed = report.overflowed,
          .val_loss = report.val_loss,
          .json = metrics_json(report)};
}

TrainingResult result_of(const TrainResult& result) {
  return {.step = result.step,
          .train_loss = result.train_loss.value_or(std::numeric_limits<double>::quiet_NaN()),
          .val_loss = result.val_loss,
          .best_step = result.best_step,
          .best_val_loss = result.best_val_loss,
          .tokens_per_s = result.tokens_per_s};
}

}  // namespace

struct Training::State {
  Log log;
  BackendRequest request;
  StartMode mode;
  LoadedConfig loaded;
  std::string config;  // resolved
  Backend backend;
  std::optional<Backend> auditor;
  Dataset data;
  std::unique_ptr<Run> run;  // goes first: it uses all of the above
  int64_t steps_done = 0;

  void begin() {
    if (mode == StartMode::resume) keep_what_resumes(posix_files(), loaded, log);
    request.deterministic = loaded.config.train.deterministic;
    request.arithmetic = loaded.config.train.arithmetic;
    backend = open_backend(request, log);
    auditor = audit_backend(*backend.catalogue, loaded.config.train.audit);
    for (const DeviceLibrary& library : backend.device->libraries()) {
      if (!library.problem.empty()) log.warning("{}: {}", library.name, library.problem);
    }
    OpenRun opened = open_run(
        posix_files(), std::move(loaded),
        {.data = {.log = log, .threads = request.threads}, .resumes = mode == StartMode::resume});
    loaded = std::move(opened.loaded);
    data = std::move(opened.data);
    config = resolved_yaml(loaded.config);
    run = std::make_unique<Run>(loaded.config, data,
                                TrainerMachine{.files = posix_files(),
                                               .device = *backend.device,
                                               .catalogue = *backend.catalogue,
                                               .isa = isa_of(request),
                                               .auditor = auditor ? &*auditor : nullptr},
                                RunStart{mode, loaded.source},
                                // Steps are told by step(), and not to the log.
                                TrainHooks{.on_step = [](const StepReport&) {}, .log = log});
    steps_done = run->trainer().step_count();
  }
};

Training::Training(const Machine& machine, const TrainingConfig& config,
                   const TrainingOptions& options)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.log = log_of(options.on_message);
  state.mode = mode_of(options.start);
  state.loaded = load(config);
  check_run_folder(posix_files(), state.loaded.config.out, state.mode);
  state.request = request_of(machine);
  if (state.mode == StartMode::resume) {
    state.request = resumed_request(
        state.request, recorded_isa(posix_files(), state.loaded.config.out), state.log);
    expect_isa_of_process(state.request);
  }
  state.begin();
}

Training::~Training() = default;
Training::Training(Training&&) noexcept = default;
Training& Training::operator=(Training&&) noexcept = default;

std::optional<TrainingStep> Training::step() {
  const std::optional<StepReport> report = state_->run->advance();
  if (!report) return std::nullopt;
  state_->steps_done = report->step;
  return step_of(*report);
}

std::optional<double> Training::evaluate() {
  return state_->run->trainer().evaluate();
}

void Training::save() {
  state_->run->trainer().save(state_->log, Trainer::Wait::yes);
}

int64_t Training::steps_done() const {
  return state_->steps_done;
}

const std::string& Training::out() const {
  return state_->loaded.config.out;
}

const std::string& Training::config() const {
  return state_->config;
}

std::optional<TrainingResult> Training::result() const {
  const std::optional<TrainResult>& result = state_->run->result();
  return result ? std::optional(result_of(*result)) : std::nullopt;
}

}  // namespace octet
