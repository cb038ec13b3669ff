#include "train/first_scales.h"

#include <algorithm>

#include "io/checkpoint.h"
#include "train/calibration.h"

namespace octet {

std::vector<std::string> first_edge_scales(RunConfig config, const Dataset& data,
                                           const TrainerMachine& machine) {
  for (int trial = 0; trial < kMostScaleTrials; ++trial) {
    Trainer trainer(config, data, machine);
    const std::vector<EdgeAlarm> alarms = trainer.alarms_of_first_step();
    if (alarms.empty()) break;
    config.recipe.edge_scales = with_rescales(config.recipe.edge_scales, alarms);
  }
  return config.recipe.edge_scales;
}

TrainResult run_to_end(RunConfig config, const Dataset& data, const TrainerMachine& machine,
                       RunStart start,
                       const std::function<TrainResult(Trainer&, const RunStart&)>& run) {
  // A run that is resumed before its first checkpoint begins anew.
  const bool goes_on =
      start.mode == StartMode::resume &&
      std::ranges::any_of(Checkpoints(machine.files, join_path(config.out, "ckpt")).list(),
                          [](const CheckpointEntry& entry) { return entry.is_whole(); });
  if (config.recipe.calibrate == "before" && !goes_on)
    config.recipe.edge_scales = first_edge_scales(config, data, machine);
  while (true) {
    Trainer trainer(config, data, machine);
    TrainResult result = run(trainer, start);
    if (!result.edge_scales || result.signal != 0) return result;
    config.recipe.edge_scales = *result.edge_scales;
    start.mode = StartMode::resume;
  }
}

}  // namespace octet
