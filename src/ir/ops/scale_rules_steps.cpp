// The scale rule of an op that has none of its own: those of the steps of its decomposition.
#include "base/error.h"
#include "ir/ops/common.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops::scale {

Scales of_steps(Scaler& s, const ScaleCall& call) {
  Graph steps;
  Builder b(steps);
  Node whole = call.node;
  std::vector<Scaled> by_value;
  for (size_t i = 0; i < whole.operands.size(); ++i) {
    if (whole.operands[i] == kNoValue) continue;
    whole.operands[i] =
        b.input(InputKind::batch, fmt::to_string(i), call.graph.type(call.node.operands[i]));
    by_value.push_back(call[i]);
  }
  const Values results = op_def(whole.op).decompose(b, whole);
  by_value.resize(steps.values.size());
  for (const Node& step : steps.nodes) {
    const OpDef& def = op_def(step.op);
    CHECK(def.scale != nullptr);
    std::vector<Scaled> in;
    for (size_t i = 0; i < step.operands.size(); ++i) {
      const Scaled& x = by_value[static_cast<size_t>(step.operands[i])];
      in.push_back(def.needs_unscaled.contains(i) ? s.unscaled(x) : x);
    }
    const Scales made = def.scale(s, {.graph = steps, .node = step, .in = in});
    for (size_t i = 0; i < step.results.size(); ++i)
      by_value[static_cast<size_t>(step.results[i])] = made[i];
  }
  Scales scaled;
  for (const ValueId id : results) scaled.push_back(by_value[static_cast<size_t>(id)]);
  return scaled;
}

}  // namespace octet::ops::scale
