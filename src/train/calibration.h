// Rescales of edges whose data left the window of their format, of recipes with propagated scales.
//
// Step `first` is sampled (runtime/edge_statistics.h), and each edge outside its window is rescaled
// by the power of two that brings it back; nothing else changes from then on. Every `recheck` steps
// one more step is sampled: what has left its window since is told, and rescaled where there was a
// calibration. What is decided is a function of the step alone, so that a resumed run decides
// alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "passes/precision/policy.h"
#include "runtime/edge_statistics.h"

namespace octet {

struct Calibration {
  int64_t first = 0, recheck = 0;  // steps; 0: never

  bool samples(int64_t step) const {
    return step == first || (recheck > 0 && step > first && step % recheck == 0);
  }
};

struct EdgeAlarm {
  EdgeStatistics edge;
  int log2 = 0;  // by which its data would come back
};

// The operands of GEMMs outside their window; of what is not finite, the first alone, which the
// others follow from. Ranks, whose activations differ, agree: the largest
// rescale of any is that of all.
//
// By their window alone; or, before a run's first step, by the largest value of inputs and weights,
// too, which a scale made from a maximum keeps.
enum class AlarmRule : uint8_t { by_window, by_maximum };
std::vector<EdgeAlarm> alarms_of(const std::vector<EdgeStatistics>& edges, Group* group,
                                 AlarmRule rule = AlarmRule::by_window);

// "layers.3.down_proj.x: data of RMS 2^7.2, 3.1 % saturated; e4m3 keeps 2^-4 to 2^6".
std::string alarm_text(const EdgeAlarm& alarm);

// recipe.edge_scales with what the alarms add to it.
std::vector<std::string> with_rescales(const std::vector<std::string>& scales,
                                       const std::vector<EdgeAlarm>& alarms);

}  // namespace octet
