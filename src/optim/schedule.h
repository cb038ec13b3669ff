// Learning-rate schedules.
//
// Steps count from 1 to `steps`. With W = warmup, N = steps, f = final_lr:
//   warm-up    step <= W:  lr * step / W, so that step W has lr
//   after it   p = (step - W) / (N - W), in (0, 1], and the last step has p = 1:
//     constant lr
//     linear   lr * (1 - (1 - f) p)
//     cosine   lr * (f + (1 - f) (1 + cos(pi p)) / 2)     Source: Loshchilov & Hutter 2017
//     wsd      lr while N - step >= D, then linear to lr * f over the D last steps, where
//              D = min(decay_share * N, N - W)            Source: Hu et al. 2024
// The last step has lr * f (but constant, and wsd without decay steps). Steps beyond N stay there.
// A run whose warm-up fills it (W >= N) only warms up.
#pragma once

#include <cstdint>
#include <string_view>

namespace octet {

enum class ScheduleKind : uint8_t { constant, linear, cosine, wsd };
constexpr std::string_view enum_name(ScheduleKind kind) {
  constexpr std::string_view names[] = {"constant", "linear", "cosine", "wsd"};
  return names[static_cast<int>(kind)];
}
constexpr int enum_count(ScheduleKind) {
  return 4;
}

struct Schedule {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 1e-3;          // the peak
  int64_t warmup = 0;        // steps
  int64_t steps = 1;         // of the whole run
  double final_lr = 0.1;     // share of lr
  double decay_share = 0.2;  // wsd: share of the steps that decay
};

// Throws Error{invalid_argument} where steps < 1, warmup < 0, or a share lies outside [0, 1]; step
// must be at least 1.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace octet
