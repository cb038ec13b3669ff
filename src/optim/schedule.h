// Learning-rate schedules.
//
// Steps count from 1 to `steps`. With W = warmup, N = steps, f = final_lr:
//   warm-up    step <= W:  lr * step / W, so that step W has lr
//   after it   p = (step - A) / (E - A), where A = max(W, 1), E = N where f > 0, else N + 1:
//     constant lr
//     linear   lr * (1 - (1 - f) p)
//     cosine   lr * (f + (1 - f) (1 + cos(pi p)) / 2)     Source: Loshchilov & Hutter 2017
//     wsd      lr while E - step >= D, then linear to lr * f over D steps, where
//              D = min(decay_share * N, E - A)            Source: Hu et al. 2024
//     inverse_sqrt  lr * sqrt(A / step), whatever N is     Source: Vaswani et al. 2017
// So no step has rate 0: without a warm-up the first step has lr, and the last step has lr * f
// where f > 0 (but constant, inverse_sqrt, wsd without decay steps, and a run of one step, which
// has lr); where f = 0 the curve would reach it one step behind. Steps beyond N stay at the rate of
// N. A run whose warm-up fills it (W >= N) only warms up.
// Version 1, of runs begun before there was another: A = W and E = N always.
#pragma once

#include <cstdint>

#include "base/named_enum.h"

namespace octet {

enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd, inverse_sqrt };
constexpr auto value_names(ScheduleKind) {
  return name_list("constant", "linear", "cosine", "wsd", "inverse_sqrt");
}

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3;          // the peak
  int64_t warmup = 0;        // steps
  int64_t steps = 1;         // of the whole run
  double final_lr = 0.1;     // share of lr
  double decay_share = 0.2;  // wsd: share of the steps that decay
  int64_t version = 2;
};

// Throws Error{invalid_argument} where steps < 1, warmup < 0, or a share lies outside [0, 1]; step
// must be at least 1.
double learning_rate(const Schedule& schedule, int64_t step);

// How long the learning rate rises in a run that is shorter than the rise was made for.
//
// optim.warmup in a run of `steps`: as it is where it fits, else a tenth of the run.
constexpr int64_t fitted_warmup(int64_t warmup, int64_t steps) {
  return warmup <= steps ? warmup : steps / 10;
}

}  // namespace octet
