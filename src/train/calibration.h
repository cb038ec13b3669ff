// Rescales of edges whose data left the window of their format, of recipes with propagated scales.
//
// Step `first` is sampled (runtime/edge_statistics.h), and each edge outside its band is rescaled
// by a power of two that is measured there; nothing else changes from then on. Every `recheck`
// steps one more step is sampled: what has left its band since is told, and rescaled where there
// was a calibration. Behind a step that was rescaled the next is sampled too, a few times: what
// saturated hid how large that is what follows from it. What is decided is a function of the step
// and of the last one that was rescaled, which checkpoints record, so that a resumed run decides
// alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.h"
#include "passes/precision/policy.h"
#include "runtime/edge_statistics.h"

namespace octet {

inline constexpr int kMaxScaleTrials = 4;  // what saturates hides how large what follows is

struct Calibration {
  int64_t first = 0, recheck = 0;  // steps; 0: never
  int64_t rescaled = 0;            // the last step whose edges were rescaled; 0: none

  bool samples(int64_t step) const;
};

struct EdgeAlarm {
  EdgeStatistics edge;
  int log2 = 0;  // by which its data would come back
};

// The operands of GEMMs outside their band; of what is not finite, the first alone, which the
// others follow from. Linears that share a scale are rescaled alike, by what their largest member
// needs. Ranks, whose activations differ, agree: the largest rescale of any is that of all.
//
// by_window: the RMS alone, for scales that are measured in the step anyway. by_maximum: of scales
// that are predicted, where codes saturate by the largest value, too. before_first_step: and where
// they are flushed to zero.
enum class AlarmRule : uint8_t { by_window, by_maximum, before_first_step };
std::vector<EdgeAlarm> alarms_of(const std::vector<EdgeStatistics>& edges, Group* group,
                                 AlarmRule rule);

// "layers.3.down_proj.x: data of RMS 2^7.2, 3.1 % saturated; e4m3 keeps 2^-4 to 2^6".
std::string alarm_text(const EdgeAlarm& alarm);

// recipe.edge_scales with what the alarms add to it.
std::vector<std::string> with_rescales(const std::vector<std::string>& scales,
                                       const std::vector<EdgeAlarm>& alarms);

}  // namespace octet
