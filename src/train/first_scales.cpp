#include "train/first_scales.h"

#include "train/calibration.h"

namespace octet {

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

}  // namespace octet
