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

// The steps at which the part after the warm-up has its first and its last value.
struct Curve {
  int64_t first, last;
};

Curve curve_of(const Schedule& schedule) {
  Curve curve{schedule.warmup, std::max(schedule.steps, schedule.warmup + 1)};
  if (schedule.version == 1) return curve;
  if (schedule.warmup == 0) curve.first = 1;
  if (schedule.final_lr == 0) ++curve.last;
  curve.last = std::max(curve.last, curve.first + 1);
  return curve;
}

// The factor of lr at a step of it.
double factor_of_curve(const Schedule& schedule, const Curve& curve, int64_t step) {
  const double f = schedule.final_lr;
  const auto left = static_cast<double>(curve.last - curve.first);
  const auto steps_left = static_cast<double>(curve.last - step);
  const double p = static_cast<double>(step - curve.first) / left;
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::linear:
      return 1 - (1 - f) * p;
    case ScheduleKind::cosine:
      return f + (1 - f) * 0.5 * (1 + std::cos(std::numbers::pi * p));
    case ScheduleKind::wsd: {
      const double share = schedule.decay_share * static_cast<double>(schedule.steps);
      const double decay_steps = std::min(share, left);
      if (steps_left >= decay_steps) return 1;
      return f + (1 - f) * steps_left / decay_steps;
    }
    case ScheduleKind::inverse_sqrt:
      return std::sqrt(static_cast<double>(std::max<int64_t>(schedule.warmup, 1)) /
                       static_cast<double>(step));
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
  return schedule.lr * factor_of_curve(schedule, curve_of(schedule), std::min(step, last));
}

}  // namespace octet
