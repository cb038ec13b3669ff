// The trainer's files: where a run starts, and what it leaves.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "config/record.h"
#include "config/report.h"
#include "infer/model_spec.h"
#include "infer/model_texts.h"
#include "train/algorithms_file.h"
#include "train/first_model.h"
#include "train/plan_report.h"
#include "train/resume.h"
#include "train/row_data.h"
#include "train/run_export.h"
#include "train/run_setup.h"
#include "train/state_io.h"
#include "train/trainer.h"
#include "train/unused_keys.h"

namespace octet {
namespace {

constexpr const char* kRefusals = "refused_updates";

// The checkpoint's adapters mean nothing beside another base.
void check_base(const AdapterNote& now, const LoadedCheckpoint& checkpoint) {
  const auto note = adapter_note_of(checkpoint.model);
  if (note && note->base_hash == now.base_hash) return;
  throw Error(ErrorCode::bad_data,
              "[resume] model.path: expected the weights that the adapters of {} were trained on "
              "({}), got others ({})",
              checkpoint.path, note ? note->base_hash : "none", now.base_hash);
}

}  // namespace

void Trainer::start(const RunStart& start, const TrainHooks& hooks) {
  checkpoints_ = std::make_unique<Checkpoints>(machine_.files, file("ckpt"), hooks.log);
  if (is_root()) {
    start_files(start, hooks);
  } else if (start.mode == StartMode::resume) {
    resume(start, hooks.log);
  }
  const bool is_behind = config_.train.async_save && config_.train.save_every > 0;
  saver_ =
      std::make_unique<StateSaver>(machine_.files, file("ckpt"), engine_,
                                   StateSaver::Options{.in_background = is_behind,
                                                       .buffer_bytes = config_.train.save_buffer,
                                                       .group = machine_.group});
  if (saved_step_) saver_->note_newest(*saved_step_);
  if (attempted_ < config_.train.steps) saver_->rehearse(checkpoints_to_come(), hooks.log);
}

// That will lie there at a time, besides those that do, as the first rank sees them.
int64_t Trainer::checkpoints_to_come() const {
  const int64_t left = config_.train.steps - attempted_, every = config_.train.save_every;
  const int64_t n_saves = every > 0 ? (left + every - 1) / every : 1;
  const int64_t most = config_.train.keep + (config_.train.keep_best ? 1 : 0) + 1;
  const auto n_there = is_root() ? static_cast<int64_t>(checkpoints_->list().size()) : 0;
  return std::clamp<int64_t>(most - n_there, 1, n_saves);
}

void Trainer::start_files(const RunStart& start, const TrainHooks& hooks) {
  Files& files = machine_.files;
  const Log& log = hooks.log;
  if (config_.train.export_as != ExportAs::none) check_export(files, config_.out);
  const bool is_new = start.mode != StartMode::resume || resume(start, log);
  if (is_new) {
    write_atomically(files, file("config.yaml"),
                     config_header(hooks.maker) + resolved_yaml(config_));
    write_atomically(files, file("config.json"),
                     model_description(files, config_, spec_, data_.label_names));
  }
  if (is_new || !has_model_texts(files, config_.out)) keep_model_texts(files, config_, log);
  if (const std::string rows = loader_.description(); !rows.empty()) log.info("{}", rows);
  if (has_validation(data_)) {
    eval_rows()->n_rows() == 0 ? warn_without_rows(data_, config_, log)
                               : tell_amount(val_amount_, log);
  }
  if (start.mode != StartMode::resume) tell_unused_on(machine_.device, engine_, config_, log);
  if (!loaded_.empty() && is_new) log.info("loaded {}: {}", config_.model.path, loaded_);
  if (const auto& test = engine_.self_test())
    log.info("[ranks] {}; self-test: {} kernels right in {:.0f} ms", machine_.device.transport(),
             test->n_kernels, test->ms);
  if (!autotune_cache_problem_.empty()) log.warning("{}", autotune_cache_problem_);
  write_autotune_cache(files, file("algorithms.json"), machine_.catalogue);
  write_plan(files, file("plan.json"), engine_.largest_plan());
  const int64_t n_recorded = unrecorded_ ? attempted_ - 1 : attempted_;
  record_ = std::make_unique<RunRecord>(files, config_, n_recorded, log);
}

// False where the run's configuration and model are written down as they are.
bool Trainer::resume(const RunStart& start, const Log& log) {
  const Stopwatch watch;
  const auto newest = checkpoints_->newest();
  if (!newest) {
    log.info("no checkpoint in {}: beginning at step 1", file("ckpt"));
    return true;
  }
  const ResumedConfig resumed =
      resumed_config(machine_.files, *newest, with_shape(config_, spec_), start.sources, log);
  config_.optim.warmup = resumed.config.optim.warmup;
  if (config_.train.steps < newest->manifest.attempted) {
    throw Error(ErrorCode::invalid_argument,
                "[resume] train.steps: expected at least {} as in the checkpoint, got {}",
                newest->manifest.attempted, config_.train.steps);
  }
  restore(*newest, log);
  if (is_root()) checkpoints_->tidy(kept_checkpoints(), newest->path);
  if (!resumed.warning.empty()) log.warning("{}", resumed.warning);
  log.info("resuming from {} ({}) at step {}", newest->path,
           watch.text(stored_bytes(engine_.layout())), attempted_);
  return resumed.is_changed || !machine_.files.exists(file("config.yaml")) ||
         !machine_.files.exists(file("config.json"));
}

void Trainer::restore(const LoadedCheckpoint& checkpoint, const Log& log) {
  const Manifest& manifest = checkpoint.manifest;
  try {
    loader_.restore(manifest.loader);
  } catch (const Error& error) {
    throw Error(error.code(), "[resume] {}: {}", checkpoint.path, error.what());
  }
  check_counters(checkpoint, loader_, config_);
  compare_machines(manifest, machine_facts(), log);
  if (adapters_) check_base(*adapters_, checkpoint);
  const Layout& layout = engine_.layout();
  restore_slots(engine_.arenas(), layout, InputKind::parameter, checkpoint.model, manifest.uses);
  restore_slots(engine_.arenas(), layout, InputKind::state, checkpoint.optim, manifest.uses);
  engine_.prepare_state();
  attempted_ = manifest.attempted;
  skipped_ = manifest.skipped;
  tokens_ = loader_.plan().counts_tokens() ? manifest.tokens : loader_.rows_consumed();
  overflowed_ = manifest.extra.contains("overflowed") ? extra_count(checkpoint, "overflowed") : 0;
  rescaled_ = manifest.extra.contains("rescaled") ? extra_count(checkpoint, "rescaled") : 0;
  read_refusals(checkpoint);
  guards_.read(manifest.extra, attempted_, checkpoint.path);
  watch_.read(manifest.extra, join_path(checkpoint.path, "manifest.json"));
  compare_validation(manifest, log);
  saved_step_ = attempted_;
  unrecorded_ = left_over_step(checkpoint);
  if (unrecorded_) unrecorded_->steps = config_.train.steps;
}

// A checkpoint without them is of a run whose t was common to all tensors, and so it stays.
void Trainer::read_refusals(const LoadedCheckpoint& checkpoint) {
  refusals_.clear();
  const auto entry = checkpoint.manifest.extra.find(kRefusals);
  if (entry == checkpoint.manifest.extra.end()) return;
  const Json json = parse_own_json(entry->second);
  const int64_t most = attempted_ - skipped_ - overflowed_;
  const auto is_count = [&](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
  };
  bool is_right = json.is_object();
  for (const auto& [parameter, n_missed] : json.items()) {
    is_right = is_right && is_count(n_missed) && engine_.layout().slots.contains(parameter);
    if (is_right) refusals_[parameter] = n_missed.get<int64_t>();
  }
  if (is_right) return;
  throw Error(ErrorCode::bad_data,
              "[resume] {}/manifest.json: '{}' must tell of parameters how many of at most {} "
              "updates they missed, got {}",
              checkpoint.path, kRefusals, most, entry->second);
}

KeyValues Trainer::machine_facts() const {
  if (!machine_.isa.empty()) return {{"device", "cpu"}, {"isa", machine_.isa}};
  KeyValues facts = {{"device", machine_.device.info().name}, {"isa", ""}};
  if (const int64_t each = machine_.device.ranks_a_host(); each > 0)
    facts["ranks_a_host"] = std::to_string(each);
  return facts;
}

Manifest Trainer::manifest() const {
  Manifest manifest;
  manifest.step = attempted_;
  manifest.attempted = attempted_;
  manifest.skipped = skipped_;
  manifest.tokens = tokens_;
  manifest.seed = static_cast<uint64_t>(config_.train.seed);
  manifest.recipe = config_.recipe.base;
  manifest.loader = loader_.state();
  guards_.write(manifest.extra);
  if (!refusals_.empty()) manifest.extra[kRefusals] = Json(refusals_).dump();
  if (engine_.has_loss_scale()) manifest.extra["overflowed"] = std::to_string(overflowed_);
  if (rescaled_ > 0) manifest.extra["rescaled"] = std::to_string(rescaled_);
  manifest.extra[kValidationContent] = val_identity_;
  watch_.write(manifest.extra);
  if (unrecorded_) manifest.extra["unrecorded"] = metrics_json(*unrecorded_);
  manifest.config = config_record(with_shape(config_, spec_));
  manifest.machine = machine_facts();
  manifest.uses = slot_uses(engine_.layout());
  return manifest;
}

// Results of validation, and what its rows are.
void Trainer::add_data(TrainResult& result) const {
  result.best_step = watch_.best_step();
  result.best_val_loss = watch_.best_loss();
  result.val_amount = val_amount_.text();
  result.unit = loader_.plan().counts_tokens() ? kTokens : kPictures;
}

// Says and writes what a run does once it has come to its end, and not to a signal.
void Trainer::finish(TrainResult& result, const Log& log) {
  add_data(result);
  if (!is_over()) return;
  if (attempted_ < config_.train.steps) {
    log.info("stopped at step {} of {}: {} evaluations of {} without a lower validation loss",
             attempted_, config_.train.steps, watch_.n_since_best(), val_amount_.text());
  }
  const bool has_best = watch_.best_step() > 0;
  if (has_best) {
    log.info("lowest validation loss {:.4f} at step {}, over {}", watch_.best_loss(),
             watch_.best_step(), val_amount_.text());
  }
  if (guards_.n_unlabelled() > 0) {
    log.warning("{} of {} steps had no labels, and stand in no average", guards_.n_unlabelled(),
                attempted_);
  }
  fail_bad_end(last_, log);
  if (config_.train.export_as == ExportAs::none || !is_root()) return;
  export_run(machine_.files, export_of_end(), log);
}

// The model that such a run leaves is that of its best evaluation, or nothing.
void Trainer::fail_bad_end(const std::optional<StepReport>& last, const Log& log) const {
  const auto problem = last ? bad_end(*last) : std::nullopt;
  if (gather_value(machine_.group, problem ? 1 : 0).front() == 0) return;  // as the root has it
  std::string rest;
  if (config_.train.export_as != ExportAs::none) {
    rest = "; nothing is exported: no evaluation with train.keep_best was finite";
    if (has_best_checkpoint()) {
      const RunExport best = export_of_end();
      if (is_root() && !is_exported(machine_.files, best)) export_run(machine_.files, best, log);
      rest = fmt::format("; the export is of step {}, which had the lowest validation loss, {:.4f}",
                         best.step, watch_.best_loss());
    }
  }
  gather_value(machine_.group, 0);  // a rank that ended would end the export
  throw Error(ErrorCode::numerics,
              "[train] expected a run that ends with a finite loss and gradient, got {}{}",
              problem.value_or("another"), rest);
}

RunExport Trainer::export_of_end() const {
  const bool takes_best = has_best_checkpoint();
  return {.run = config_.out,
          .step = takes_best ? watch_.best_step() : attempted_,
          .form = config_.train.export_as};
}

// Writes nothing, and leaves the trainer at the checkpoint, as a run to its end does. Each answer
// is that of all ranks, by the first one's look at the files.
bool Trainer::is_finished(const RunStart& start) {
  const auto root_says = [&](bool answer) {
    return gather_value(machine_.group, answer ? 1 : 0).front() != 0;
  };
  if (start.mode != StartMode::resume || !root_says(is_root() && seems_finished(start)))
    return false;
  const auto newest = Checkpoints(machine_.files, file("ckpt")).newest();
  if (!newest) throw Error(ErrorCode::io, "[resume] '{}': the checkpoint is gone", file("ckpt"));
  restore(*newest, {});
  const auto last = recorded_step(machine_.files, config_.out, attempted_);
  // One that ended badly has exported the best checkpoint, or nothing.
  const bool exports = config_.train.export_as != ExportAs::none &&
                       (has_best_checkpoint() || !(last && bad_end(last->report)));
  const bool is_finished = root_says(is_root() && is_over() && !unrecorded_ && last &&
                                     (!exports || is_exported(machine_.files, export_of_end())));
  if (is_finished && is_root())
    tidy_run_folder(machine_.files, config_.out, kept_checkpoints(), newest->path);
  return is_finished;
}

// By manifest and configuration.
bool Trainer::seems_finished(const RunStart& start) const {
  Files& files = machine_.files;
  try {
    if (!is_at_end(files, config_)) return false;
    const auto newest = Checkpoints(files, file("ckpt")).newest();
    return newest && !resumed_config(files, *newest, with_shape(config_, spec_), start.sources, {})
                          .is_changed;
  } catch (const Error&) {
    return false;  // the run that goes on tells what is amiss, once it holds the folder
  }
}

TrainResult Trainer::finished_result(const Log& log) {
  TrainResult result;
  result.step = attempted_;
  result.was_finished = true;
  add_data(result);
  add_memory(result);
  std::string loss;
  if (const auto last = recorded_step(machine_.files, config_.out, attempted_)) {
    result.train_loss = last->train_loss;
    result.val_loss = last->report.val_loss;
    loss = fmt::format(", loss {:.4f}", unsigned_nan(last->report.loss));
    fail_bad_end(last->report, log);
  }
  if (!is_root()) return result;  // whose logs are of the ranks' work
  log.info("the run is finished: step {} of {}{} ({})", attempted_, config_.train.steps, loss,
           attempted_ < config_.train.steps ? "train.patience ended it"
                                            : "a larger train.steps goes on");
  return result;
}

// The fate of the state where the run ends with an error; "" where there is none to save.
std::string Trainer::save_before_end(const Log& log) {
  const bool is_saved = saved_step_ == attempted_;
  if (attempted_ == 0) return "";
  if (machine_.group != nullptr) {  // the others may be in the middle of a step
    const std::optional<int64_t> newest = saver_->newest_step();
    return newest ? fmt::format("the newest checkpoint is of step {}", *newest)
                  : "there is no checkpoint yet";
  }
  if (!is_saved && !engine_.is_whole()) {
    return fmt::format("step {} was half done: the state was not saved", attempted_ + 1);
  }
  try {
    save(log, Wait::yes);
    return is_saved ? fmt::format("the newest checkpoint is of step {}", attempted_)
                    : fmt::format("the state of step {} was saved", attempted_);
  } catch (const std::exception& error) {
    return fmt::format("saving the state of step {} failed too: {}", attempted_, error.what());
  }
}

// Rank 0 looks after the files.
RunEnding Trainer::own_ending() const {
  if (!record_) return RunEnding::none;
  if (lock_ != nullptr && !lock_->is_in_place() &&
      machine_.files.entry_kind(file(".lock")) != EntryKind::none)
    return RunEnding::folder_taken;
  if (!record_->is_in_place()) return RunEnding::folder_gone;
  return !is_over() && saver_->is_short_of_room() ? RunEnding::no_room : RunEnding::none;
}

// Each rank says the same.
void Trainer::end_with(RunEnding ending) const {
  if (ending == RunEnding::no_room) {
    throw Error(ErrorCode::io,
                "[checkpoint] expected room in '{}' for metrics and the next checkpoint, got none "
                "for both; the state of step {} was saved (make room, and go on with --resume)",
                config_.out, attempted_);
  }
  const bool is_taken = ending == RunEnding::folder_taken;
  throw Error(
      ErrorCode::io,
      "[train] expected the run's folder to stay, but '{}' was removed, moved or "
      "replaced{}",
      file(is_taken ? ".lock" : "metrics.jsonl"),
      is_taken ? " by another run; nothing more is written there"
               : fmt::format("; the state of step {} was saved in '{}'", attempted_, config_.out));
}

void Trainer::save(const Log& log, Wait wait) {
  machine_.device.enter();
  if (saved_step_ != attempted_) {
    if (is_root()) sync_record(log);
    if (wait == Wait::yes) {
      saver_->save_now(save_request(), log);
    } else {
      saver_->save_async(save_request(), log);
    }
    saved_step_ = attempted_;
  }
  if (wait == Wait::yes && saver_) saver_->wait(log);
}

SaveRequest Trainer::save_request() {
  return {.manifest = manifest(),
          .model_metadata =
              adapters_ ? KeyValues{{kAdapterNote, adapter_note_text(*adapters_)}} : KeyValues{},
          .keep = kept_checkpoints()};
}

KeptCheckpoints Trainer::kept_checkpoints() const {
  const auto also = config_.train.keep_best ? std::optional(watch_.best_step()) : std::nullopt;
  return {static_cast<int>(config_.train.keep), also};
}

// The lines of a checkpoint's steps must outlast a power failure as well.
void Trainer::sync_record(const Log& log) {
  try {
    record_->sync(log);
  } catch (const Error&) {
    if (!unrecorded_) throw;  // else it is the error that ends the run
  }
}

}  // namespace octet
