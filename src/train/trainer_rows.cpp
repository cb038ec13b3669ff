// Data that the trainer reads and writes beside its steps: their rows, read ahead of them,
// evaluations and samples; and the energy that they cost.
#include <utility>

#include "base/error.h"
#include "train/preference_data.h"
#include "train/resume.h"
#include "train/row_data.h"
#include "train/step_energy.h"
#include "train/trainer.h"

namespace octet {

// Read already, unless a step that is traced reads it again.
Batch Trainer::micro_batch(size_t index) {
  const int64_t place = static_cast<int64_t>(index) * n_ranks() + machine_.rank();
  const int64_t n_rows = loader_.batch_rows(config_.train.batch), skip = place * n_rows;
  if (reader_) {
    if (auto batch = reader_->take(loader_.rows_consumed() + skip)) return std::move(*batch);
  }
  return loader_.peek(skip, n_rows);
}

void Trainer::read_ahead() {
  if (!machine_.reads_ahead.value_or(machine_.device.info().is_asynchronous)) return;
  reader_ = std::make_unique<RowReader>(
      loader_, RowReaderOptions{.batch = config_.train.batch,
                                .accumulate = config_.train.accumulate,
                                .ranks = n_ranks(),
                                .rank = machine_.rank(),
                                .steps = config_.train.steps - attempted_,
                                .prepare = [this](Batch& read) { engine_.stage(read); }});
}

std::unique_ptr<EvalRows> Trainer::eval_rows() const {
  return make_eval_rows(data_, config_, spec_, shorter_lengths(loader_, config_.model.seq));
}

// Once, before the weights move. Of a run that goes on those that it stored.
void Trainer::take_references(StartMode mode, const Log& log) {
  if (has_references_) return;
  const std::string path = file("reference.safetensors");
  const bool may_read = mode == StartMode::resume;
  const Stopwatch watch;
  const ReferenceFrom from =
      set_references({machine_.files, engine_, config_}, data_, may_read ? path : "");
  has_references_ = true;
  if (from != ReferenceFrom::weights) return;
  gather_value(machine_.group, 0);  // no rank reads what the first one still writes
  if (is_root()) write_references(machine_.files, data_, path);
  log.info("[data] the model's start has judged all answers in {:.1f} s", watch.seconds());
}

// Without a folder.
void Trainer::take_references() {
  if (!std::exchange(has_references_, true))
    set_references({machine_.files, engine_, config_}, data_, "");
}

std::optional<double> Trainer::evaluate() {
  if (!has_validation(data_)) return std::nullopt;
  take_references();
  return evaluation().loss(engine_.losses());
}

RunEvaluation Trainer::evaluation() {
  machine_.device.enter();
  return engine_.evaluate(*eval_rows());
}

// None where a weight is not finite: the run's guards tell of that.
std::vector<TextSample> Trainer::due_samples() {
  const TrainConfig& train = config_.train;
  if (!samples_ || !is_due(train.sample_every > 0 ? train.sample_every : train.eval_every))
    return {};
  machine_.device.enter();
  try {
    return samples_->write(engine_, attempted_);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::numerics) throw;
    hooks_.log.warning("step {}: no samples: {}", attempted_, error.what());
    return {};
  }
}

// Losses of other data are no lower or higher ones: the lowest is looked for anew. Checkpoints of
// earlier versions do not say what they were validated with.
void Trainer::compare_validation(const Manifest& manifest, const Log& log) {
  const auto validation = manifest.extra.find(kValidationContent);
  if (validation == manifest.extra.end() || validation->second == val_identity_) return;
  watch_.begin_anew();
  if (!has_validation(data_)) {
    log.warning("[resume] the validation data are gone: there is no val_loss from here");
    return;
  }
  log.warning(
      "[resume] the validation data changed: val_loss is that of other data from here, and the "
      "lowest one is looked for anew");
}

// The first rank holds the record, which the others read.
std::optional<double> Trainer::train_loss() const {
  if (record_) return record_->train_loss();
  const auto last = recorded_step(machine_.files, config_.out, attempted_);
  return last ? last->train_loss : std::nullopt;
}

void Trainer::count_energy() {
  const bool is_gpu = machine_.device.info().is_asynchronous;
  energy_ = std::make_shared<StepEnergy>(is_gpu ? Energy::gpu : Energy::processors);
}

std::optional<double> Trainer::take_joules(const StepReport& report) {
  return energy_->take(report.step == report.steps);
}

}  // namespace octet
