#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "config/report.h"
#include "infer/loaded_rms.h"
#include "infer/model_spec.h"
#include "infer/weights.h"
#include "train/algorithms_file.h"
#include "train/first_model.h"
#include "train/row_data.h"
#include "train/run_setup.h"
#include "train/state_io.h"
#include "train/step_inputs.h"

namespace octet {
namespace {

ProgramOptions with_lengths(ProgramOptions options, const RowLoader& loader,
                            const RunSamples* samples) {
  options.shorter = shorter_lengths(loader, options.train.seq);
  for (const RowSize& size : loader.plan().sizes()) {
    BatchSize batch = options.train;
    batch.batch = size.rows, batch.seq = size.seq;
    const bool is_full =
        batch == options.train && size.source == loader.plan().source().source_seq();
    batch.source = size.source;
    if (!is_full) options.batches.push_back(batch);
  }
  if (samples != nullptr) options.texts = samples->lengths();
  return options;
}

// Nothing where all parameters are trained.
std::optional<AdapterNote> adapter_note(const TrainerMachine& machine, const RunConfig& config,
                                        const ModelSpec& spec) {
  if (config.lora.rank == 0) return std::nullopt;
  const WeightReader base(machine.files, config.model.path, spec, NonfiniteWeights::allowed,
                          head_weights(config));
  const LoraOptions lora = lora_options(config, spec);
  return AdapterNote{.base = config.model.path,
                     .base_hash = weights_hash(base, spec, lora.head),
                     .lora = lora,
                     .frozen = frozen_format(config),
                     .compute = config.recipe.compute.value()};
}

}  // namespace

Trainer::Trainer(const RunConfig& config, const Dataset& data, const TrainerMachine& machine)
    : config_(config),
      machine_(machine),
      spec_(model_from_config(machine.files, config)),
      samples_(make_run_samples(machine.files, config, spec_)),
      loader_(make_loader(data, config)),
      autotune_cache_problem_(
          load_autotune_cache(machine.files, file("algorithms.json"), machine.catalogue)),
      engine_(with_lengths(loaded_options(machine.files, config, spec_, machine.rank()), loader_,
                           samples_.get()),
              machine.device, machine.catalogue, machine.group),
      data_(data),
      guards_(config.train, config.optim) {
  // Now: a state can be saved when the data cannot be read.
  val_amount_ = eval_amount(data_, config_, spec_);
  val_identity_ = fmt::format("{:016x}", validation_identity(data_, config_, spec_));
  loaded_ = set_first_weights(engine_, machine, config, spec_);
  adapters_ = adapter_note(machine, config, spec_);
  count_energy();
  if (config.train.debug_nonfinite) engine_.enable_tracing();
  if (config.train.audit == 0) return;
  if (machine.auditor == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "train.audit: expected 0 on {}: the sums of its GEMMs have no rule; that of Hopper "
                "GPUs, and of a CPU with train.arithmetic hopper, is known",
                machine.device.info().name);
  }
  audit_ = std::make_unique<GemmAudit>(engine_.arenas(), machine_.device, machine_.catalogue,
                                       *machine.auditor, static_cast<uint32_t>(config.train.seed));
}

Trainer::~Trainer() {
  if (is_running_) saver_->settle(hooks_.log);
}

StepReport Trainer::step() {
  take_references();
  const Stopwatch watch;
  const int64_t n_windows = loader_.step_rows();
  const RowCounts counts = loader_.count(n_windows);
  const MicroBatches batches{.count = static_cast<size_t>(config_.train.accumulate),
                             .items = counts.items,
                             .read = [&](size_t i) { return micro_batch(i); }};
  StepReport report;
  report.step = attempted_ + 1;
  report.steps = config_.train.steps;
  report.lr = learning_rate(schedule_of(config_), report.step);
  const StepScalars scalars = scalars_of(report);
  const StepOutcome outcome = watched_step(batches, scalars, report);
  const double seconds = watch.seconds() - (saver_ ? saver_->take_step_stall() : 0);
  loader_.advance(n_windows);
  count_skips(outcome);
  tokens_ += counts.n_padded_tokens;
  static_cast<StepOutcome&>(report) = outcome;
  report.clipped = scalars.clip > 0 && outcome.grad_norm > scalars.clip;
  report.skipped = outcome.nonfinite && !outcome.overflowed && !outcome.partial;
  report.tokens = tokens_;
  report.labels = n_items(counts.items, engine_.losses().front());
  report.mem_bytes = engine_.planned_bytes();
  report.time_ms = seconds * 1000;
  report.unit = counts.has_tokens ? kTokens : kPictures;
  report.tokens_per_s = static_cast<double>(counts.n_tokens) / seconds;
  report.joules = take_joules(report);
  return report;
}

StepScalars Trainer::scalars_of(const StepReport& report) const {
  StepScalars scalars = {.lr = static_cast<float>(report.lr),
                         .applied = attempted_ + 1 - skipped_ - overflowed_,
                         .clip = static_cast<float>(config_.optim.clip),
                         .attempt = static_cast<uint32_t>(report.step)};
  for (const auto& [parameter, n_missed] : refusals_)
    scalars.own[parameter] = scalars.applied - n_missed;
  return scalars;
}

void Trainer::count_skips(const StepOutcome& outcome) {
  ++attempted_;
  overflowed_ += outcome.overflowed ? 1 : 0;
  if (outcome.partial) {
    for (const std::string& parameter : outcome.skipped_tensors) ++refusals_[parameter];
  } else {
    skipped_ += outcome.nonfinite && !outcome.overflowed ? 1 : 0;
  }
}

// A step that is sampled or audited is watched, and the same step.
StepOutcome Trainer::watched_step(const MicroBatches& batches, const StepScalars& scalars,
                                  StepReport& report) {
  const auto is_due_in = [&](int64_t every) {
    return every > 0 && (report.step == 1 || report.step % every == 0);
  };
  const bool has_edges =
      is_due_in(config_.train.telemetry) || is_trial_ || calibration().samples(report.step);
  const bool has_audit = audit_ && is_due_in(config_.train.audit);
  if (!has_edges && !has_audit) return engine_.step(batches, scalars);
  EdgeWatch watch(engine_.arenas(), is_trial_ ? EdgeLooks::scales : EdgeLooks::all);
  const StepObserver edges = has_edges ? watch.observer() : StepObserver();
  const StepObserver audit = has_audit ? audit_->observer(report.step) : StepObserver();
  StepObserver profile = engine_.observe({});
  engine_.observe([&](const Plan& plan, const PlanStep& step, bool before) {
    if (profile) profile(plan, step, before);
    if (edges) edges(plan, step, before);
    if (audit) audit(plan, step, before);
  });
  try {
    StepOutcome outcome = engine_.step(batches, scalars);
    engine_.observe(std::move(profile));
    report.edges = watch.take();
    if (has_audit) report.audit = audit_->take();
    return outcome;
  } catch (...) {
    engine_.observe(std::move(profile));
    throw;
  }
}

// Behind its record, before anything of its step is saved.
void Trainer::check_audit(const StepReport& report) const {
  if (report.audit.empty() || config_.train.on_audit == OnAudit::warn) return;
  throw Error(ErrorCode::device, "[audit] step {}: {} (train.on_audit)", report.step,
              audit_text(report.audit.front()));
}

std::vector<EdgeAlarm> Trainer::alarms_of_first_step() {
  is_trial_ = true;
  const StepReport report = step();
  return alarms_of(report.edges, machine_.group, AlarmRule::before_first_step);
}

bool Trainer::is_due(int64_t every) const {
  return attempted_ == config_.train.steps || (every > 0 && attempted_ % every == 0);
}

// Writes down the step that is done, and has nothing to write then.
StepReport Trainer::record() {
  StepReport& report = unrecorded_.value();
  if (is_due(config_.train.eval_every) && !report.val_loss && has_validation(data_)) {
    const RunEvaluation all = evaluation();
    report.val_loss = all.loss(engine_.losses());
    report.val_figures = all.figures(engine_.losses());
    if (!val_amount_.is_all()) report.val_amount = val_amount_.text();
  }
  if (report.val_loss) watch_.add(report.step, *report.val_loss);
  const std::vector<TextSample> samples = due_samples();
  if (saver_) {
    saver_->poll(hooks_.log);
    if (const auto times = saver_->take_times()) report.save = times;
  }
  if (record_) {
    record_->add(samples, hooks_.log);  // first: who sees the step's line finds them
    saver_->note_step(record_->add(report, hooks_.log), hooks_.log);
  } else {  // a rank that keeps no record
    for (const AuditDifference& difference : report.audit)
      hooks_.log.warning("step {}: {}", report.step, audit_text(difference));
  }
  if (hooks_.on_step) {
    hooks_.on_step(report);
  } else if (line_clock_.is_due(is_due(config_.train.log_every) || report.val_loss ||
                                report.skipped || !report.skipped_tensors.empty())) {
    hooks_.log.info("{}", step_line(report));
  }
  for (const TextSample& sample : samples) hooks_.log.info("{}", sample_line(sample));
  last_ = std::exchange(unrecorded_, std::nullopt);
  return *last_;
}

// A failure while the state is whole costs no step: that is saved before the error goes on.
void Trainer::save_if_it_fails(const std::function<void()>& work) {
  const auto end_with = [&](ErrorCode code, const std::string& what) {
    const std::string saved = save_before_end(hooks_.log);
    throw Error(code, saved.empty() ? what : what + "; " + saved);
  };
  try {
    work();
  } catch (const Error& error) {
    end_with(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    end_with(ErrorCode::device, "out of memory");
  } catch (const std::exception& error) {
    end_with(ErrorCode::internal, error.what());
  }
}

// The step that a run before this one did and could not write down.
StepReport Trainer::record_left_over() {
  StepReport report;
  save_if_it_fails([&] { report = record(); });
  guards_.check(report, is_over(), hooks_.log);
  saved_step_.reset();  // the checkpoint still tells of it
  save(hooks_.log, Wait::yes);
  return report;
}

// One answer of all ranks.
RunWishes Trainer::wishes() const {
  const int stop = hooks_.stop && !is_over() ? hooks_.stop->load() : 0;
  RunWishes result;
  for (const RunWishes& own : gather_value(machine_.group, RunWishes{stop, own_ending()})) {
    result.signal = std::max(result.signal, own.signal);
    result.ending = std::max(result.ending, own.ending);
  }
  return result;
}

// A save that runs may leave room again, where an older checkpoint gives way to it.
RunWishes Trainer::settled_wishes() {
  const RunWishes now = wishes();
  if (now.ending != RunEnding::no_room) return now;
  saver_->wait(hooks_.log);
  if (is_root()) saver_->note_step(0, hooks_.log);
  return wishes();
}

// Edges that have left their window are told, and rescaled from the next step on.
bool Trainer::recalibrate(const StepReport& report, const Log& log) {
  if (!calibration().samples(report.step)) return false;
  const std::vector<EdgeAlarm> alarms = alarms_of(
      report.edges, machine_.group,
      predicts_scales(config_.recipe.base) ? AlarmRule::by_maximum : AlarmRule::by_window);
  const bool rescales = config_.recipe.calibrate != "0";
  for (const EdgeAlarm& alarm : alarms) {
    log.warning("step {}: {}{}", report.step, alarm_text(alarm),
                rescales ? fmt::format("; rescaled by 2^{}", alarm.log2) : "");
  }
  if (alarms.empty() || !rescales) return false;
  config_.recipe.edge_scales = with_rescales(config_.recipe.edge_scales, alarms);
  rescaled_ = report.step;
  saved_step_.reset();  // the checkpoint records both
  return true;
}

bool Trainer::is_over() const {
  const int64_t patience = config_.train.patience;
  return attempted_ >= config_.train.steps || (patience > 0 && watch_.n_since_best() >= patience);
}

bool Trainer::begin(const RunStart& run_start, const TrainHooks& hooks) {
  machine_.device.enter();
  hooks_ = hooks;
  if (is_finished(run_start)) return false;
  std::unique_ptr<FileLock> lock;
  if (is_root()) lock = take_run_folder(machine_.files, config_.out, run_start.mode, hooks.log);
  gather_value(machine_.group, 0);  // no rank looks into a folder that the first one still tidies
  take_references(run_start.mode, hooks.log);  // of the first weights
  start(run_start, hooks);
  lock_ = std::move(lock);
  weight_watch_.emplace(engine_.arenas(), engine_.layout());
  read_ahead();
  since_begin_ = {};
  is_running_ = true;
  return true;
}

std::optional<StepReport> Trainer::advance() {
  machine_.device.enter();
  if (is_done()) return std::nullopt;
  try {
    return unrecorded_ ? record_left_over() : step_to_the_save();
  } catch (...) {
    is_running_ = false;
    reader_.reset();
    saver_->settle(hooks_.log);
    lock_.reset();
    throw;
  }
}

bool Trainer::is_done() const {
  return !unrecorded_ && (is_over() || result_.signal != 0 || result_.edge_scales);
}

TrainResult Trainer::end() {
  machine_.device.enter();
  if (!std::exchange(is_running_, false)) return finished_result(hooks_.log);
  reader_.reset();
  const std::unique_ptr<FileLock> lock = std::move(lock_);  // to the end of this function
  try {
    saver_->wait(hooks_.log);
  } catch (...) {
    saver_->settle(hooks_.log);
    throw;
  }
  finish(result_, hooks_.log);
  if (tally_.n_steps() == 0) return finished_result(hooks_.log);
  result_.step = attempted_;
  result_.train_loss = train_loss();
  result_.tokens_per_s = tally_.tokens_per_s().value_or(0);
  add_memory(result_);
  return result_;
}

TrainResult Trainer::run(const RunStart& run_start, const TrainHooks& hooks) {
  if (begin(run_start, hooks)) {
    while (advance()) {
    }
  }
  return end();
}

void Trainer::add_memory(TrainResult& result) const {
  result.planned_bytes = engine_.planned_bytes();
  result.state_bytes = engine_.state_bytes();
  result.peak_bytes = peak_resident_bytes();
}

StepReport Trainer::step_to_the_save() {
  const Log& log = hooks_.log;
  if (hooks_.before_step) hooks_.before_step(attempted_ + 1);
  StepReport report;
  save_if_it_fails([&] {
    unrecorded_ = step();
    tally_.add(*unrecorded_);
    unrecorded_->seconds_left = since_begin_.seconds() / static_cast<double>(tally_.n_steps()) *
                                static_cast<double>(config_.train.steps - attempted_);
    report = record();
  });
  if (report.val_loss) result_.val_loss = report.val_loss;
  const RunWishes wish = settled_wishes();
  if (wish.ending == RunEnding::folder_taken) end_with(wish.ending);
  if (wish.ending == RunEnding::folder_gone) saver_->give_up(log);
  saver_->throw_failure();
  check_audit(report);
  guards_.check(report, is_over(), log);
  if (weight_watch_ && guards_.ends_first_steps(report)) {
    guards_.check_movement(weight_watch_->moved(machine_.group), report, log);
    weight_watch_.reset();
  }
  result_.signal = wish.signal;
  const bool is_best = config_.train.keep_best && watch_.best_step() == attempted_;
  if (!is_over() && recalibrate(report, log)) result_.edge_scales = config_.recipe.edge_scales;
  const bool is_awaited = is_best || is_over() || result_.signal != 0 || result_.edge_scales ||
                          wish.ending != RunEnding::none;
  if (is_due(config_.train.save_every) || is_awaited) save(log, is_awaited ? Wait::yes : Wait::no);
  if (wish.ending != RunEnding::none) end_with(wish.ending);
  // A signal that came while the state was saved needs no other step.
  if (saved_step_ == attempted_) result_.signal = wishes().signal;
  return report;
}

Calibration Trainer::calibration() const {
  return {calibration_step(config_.recipe.calibrate).value_or(0), config_.recipe.recheck,
          rescaled_};
}

}  // namespace octet
