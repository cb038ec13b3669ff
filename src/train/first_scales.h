// Scales of a run that calibrates before its first step.
#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace octet {

inline constexpr int kMaxScaleTrials = 4;  // what saturates hides how large what follows is

// recipe.edge_scales, by steps on the run's first batch that are thrown away: the same bits
// whenever it is begun.
std::vector<std::string> first_edge_scales(RunConfig config, const Dataset& data,
                                           const TrainerMachine& machine);

}  // namespace octet
