#include "train/weight_state.h"

#include <algorithm>

#include "plan/updates.h"
#include "plan/views.h"

namespace octet {
namespace {

// The parameter that the value is, as it lies there; nullptr for anything else, a shard of it too.
const GraphInput* whole_parameter(const Graph& graph, ValueId id) {
  while (const Node* node = graph.producer(id, OpCode::reshape)) id = node->in(Unary::x);
  const GraphInput* input = graph.input_of(id);
  return input != nullptr && input->kind == InputKind::parameter ? input : nullptr;
}

}  // namespace

void WeightState::add(const BoundPlan& function) {
  const Graph& graph = function.plan().graph;
  Use& use = uses_[&function];
  const auto read = [&](ValueId id) {
    const GraphInput* input = id == kNoValue ? nullptr : whole_parameter(graph, id);
    if (input != nullptr) use.read.insert(input->name);
  };
  for (const Node& node : graph.nodes) {
    if (completes_input(graph, node))
      use.gathered.insert(graph.input_of(view_root(graph, node.out(Unary::y)))->name);
    if (is_view(graph, node)) continue;
    for (const ValueId id : node.operands) read(id);
  }
  for (const GraphOutput& output : graph.outputs) {
    if (new_shard(graph, output) == output.value)
      use.left.insert(graph.input_of(output.updates)->name);
    if (output.updates != output.value) read(output.value);
  }
}

bool WeightState::lacks(const BoundPlan& function) const {
  const std::set<std::string>& read = uses_.at(&function).read;
  return std::ranges::any_of(partial_,
                             [&](const std::string& name) { return read.contains(name); });
}

void WeightState::note(const BoundPlan& function) {
  const Use& use = uses_.at(&function);
  for (const std::string& name : use.gathered) partial_.erase(name);
  partial_.insert(use.left.begin(), use.left.end());
}

}  // namespace octet
