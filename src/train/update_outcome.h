// The outcome of a step, as the function that updates says it.
#pragma once

#include <cstddef>

#include "device/device.h"
#include "runtime/executor.h"
#include "train/step_report.h"

namespace octet {

StepOutcome read_update(const BoundPlan& function, Device& device);

// How many parameters are judged by themselves.
size_t n_judged_alone(const BoundPlan& function);

}  // namespace octet
