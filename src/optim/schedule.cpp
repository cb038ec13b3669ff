#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace octet {
namespace {

void check_share(std::string_view name, double share) {
  if (share >= 0 && share <= 1) return;
  throw Error(ErrorCode::invalid_argument, "[schedule] expected {} within 0 and 1, got {}", name,
              share);
}

void check(const Schedule& schedule) {
  if (schedule.steps < 1) {
    throw Error(ErrorCode::invalid_argument, "[schedule] expected at least 1 step, got {}",
                schedule.steps);
  }
  if (schedule.warmup < 0) {
    throw Error(ErrorCode::invalid_argument, "[schedule] expected warmup of at least 0, got {}",
                schedule.warmup);
  }
  check_share("final_lr", schedule.final_lr);
  check_share("decay_share", schedule.decay_share);
}

// The factor of lr at progress p of the part after the warm-up.
double factor_after_warmup(const Schedule& schedule, double p, double steps_left) {
  const double f = schedule.final_lr;
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::linear:
      return 1 - (1 - f) * p;
    case ScheduleKind::cosine:
      return f + (1 - f) * 0.5 * (1 + std::cos(std::numbers::pi * p));
    case ScheduleKind::wsd: {
      const auto left = static_cast<double>(schedule.steps - schedule.warmup);
      const double share = schedule.decay_share * static_cast<double>(schedule.steps);
      const double decay_steps = std::min(share, left);
      if (steps_left >= decay_steps) return 1;
      return f + (1 - f) * steps_left / decay_steps;
    }
  }
  CHECK(false);
  return 0;
}

}  // namespace

double learning_rate(const Schedule& schedule, int64_t step) {
  check(schedule);
  CHECK(step >= 1);
  if (step <= schedule.warmup) {
    return schedule.lr * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  }
  const int64_t last = std::max(schedule.steps, schedule.warmup + 1);
  const int64_t at = std::min(step, last);
  const double p =
      static_cast<double>(at - schedule.warmup) / static_cast<double>(last - schedule.warmup);
  return schedule.lr * factor_after_warmup(schedule, p, static_cast<double>(last - at));
}

}  // namespace octet
