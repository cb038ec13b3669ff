#include "train/update_outcome.h"

#include <algorithm>

#include "ir/states.h"

namespace octet {
namespace {

bool read_quantizer_flag(const BoundPlan& function, Device& device) {
  const std::string output(kQuantizerFlag), input = state_name(StateUse::accumulated_flag, "");
  const std::byte* at = function.has_output(output) ? function.output(output)
                        : function.has_input(input) ? function.input(input)
                                                    : nullptr;
  uint8_t flag = 0;
  if (at != nullptr) device.copy_out(&flag, at, sizeof(flag));
  return flag != 0;
}

std::vector<std::string> read_skipped_tensors(const BoundPlan& function) {
  std::vector<std::string> skipped_tensors;
  for (const GraphOutput& output : function.plan().graph.outputs) {
    const auto parameter = nonfinite_parameter(output.name);
    if (!parameter) continue;
    uint8_t flag = 0;
    function.read_output(output.name, &flag, sizeof(flag));
    if (flag != 0) skipped_tensors.push_back(*parameter);
  }
  return skipped_tensors;
}

}  // namespace

size_t n_judged_alone(const BoundPlan& function) {
  return static_cast<size_t>(std::ranges::count_if(
      function.plan().graph.outputs,
      [](const GraphOutput& output) { return nonfinite_parameter(output.name).has_value(); }));
}

StepOutcome read_update(const BoundPlan& function, Device& device) {
  StepOutcome outcome;
  outcome.grad_norm = function.read_scalar("grad_norm");
  uint8_t flag = 0;
  function.read_output("found_nonfinite", &flag, sizeof(flag));
  outcome.nonfinite = flag != 0;
  outcome.flagged = read_quantizer_flag(function, device);
  if (outcome.nonfinite) outcome.skipped_tensors = read_skipped_tensors(function);
  return outcome;
}

}  // namespace octet
