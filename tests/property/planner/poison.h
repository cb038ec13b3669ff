// Runs a plan on the reference kernels, spoiling every value's bytes as soon as the program does
// not read them any more: a plan that is wrong about a lifetime then gives wrong outputs.
#pragma once

#include "backends/cpu/reference/reference.h"
#include "plan/plan.h"

namespace octet::plan_checker {

// The outputs; inputs by name, as for reference::interpret.
reference::Tensors run_poisoned(const Plan& plan, const reference::Tensors& inputs);

}  // namespace octet::plan_checker
