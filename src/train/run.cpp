#include "train/run.h"

#include <algorithm>
#include <utility>

#include "io/checkpoint.h"
#include "train/calibration.h"

namespace octet {
namespace {

// recipe.edge_scales of a run that calibrates before its first step, by steps on its first batch
// that are thrown away: the same bits whenever it is begun.
std::vector<std::string> first_edge_scales(RunConfig config, const Dataset& data,
                                           const TrainerMachine& machine) {
  for (int trial = 0; trial < kMaxScaleTrials; ++trial) {
    Trainer trainer(config, data, machine);
    const std::vector<EdgeAlarm> alarms = trainer.alarms_of_first_step();
    if (alarms.empty()) break;
    config.recipe.edge_scales = with_rescales(config.recipe.edge_scales, alarms);
  }
  return config.recipe.edge_scales;
}

}  // namespace

Run::Run(RunConfig config, const Dataset& data, const TrainerMachine& machine, RunStart start,
         TrainHooks hooks)
    : config_(std::move(config)),
      data_(data),
      machine_(machine),
      start_(std::move(start)),
      hooks_(std::move(hooks)) {
  if (config_.recipe.calibrate == "before" && !goes_on())
    config_.recipe.edge_scales = first_edge_scales(config_, data_, machine_);
  begin();
}

// A run that is resumed before its first checkpoint begins anew. The first rank's answer.
bool Run::goes_on() const {
  const bool is_root = machine_.group == nullptr || machine_.group->rank() == 0;
  const auto has_whole = [&] {
    return std::ranges::any_of(Checkpoints(machine_.files, join_path(config_.out, "ckpt")).list(),
                               [](const CheckpointEntry& entry) { return entry.is_whole(); });
  };
  const bool own = is_root && start_.mode == StartMode::resume && has_whole();
  return gather_value(machine_.group, own ? 1 : 0).front() != 0;
}

// One trainer at a time has the device's memory.
void Run::begin() {
  trainer_.reset();
  trainer_ = std::make_unique<Trainer>(config_, data_, machine_);
  if (hooks_.on_trainer) hooks_.on_trainer(*trainer_);
  if (!trainer_->begin(start_, hooks_) || trainer_->is_done()) end_trainer();
}

void Run::end_trainer() {
  TrainResult result = trainer_->end();
  if (hooks_.on_end) hooks_.on_end(result);
  if (!result.edge_scales || result.signal != 0) {
    result_ = std::move(result);
    return;
  }
  config_.recipe.edge_scales = *result.edge_scales;
  start_.mode = StartMode::resume;
  begin();
}

std::optional<StepReport> Run::advance() {
  if (error_) std::rethrow_exception(error_);
  if (result_) return std::nullopt;
  try {
    std::optional<StepReport> report = trainer_->advance();
    if (trainer_->is_done()) end_trainer();
    return report;
  } catch (...) {
    error_ = std::current_exception();
    trainer_.reset();
    throw;
  }
}

TrainResult Run::to_end() {
  while (advance()) {
  }
  return result_.value();
}

Trainer& Run::trainer() {
  if (error_) std::rethrow_exception(error_);
  return *trainer_;
}

}  // namespace octet
