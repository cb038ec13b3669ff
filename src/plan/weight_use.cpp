#include "plan/weight_use.h"

#include "ir/ops/slots.h"
#include "plan/views.h"

namespace octet {
namespace {

// The parameter that the value is, or is another shape of; nullptr for anything else, such as a
// shard of it.
const GraphInput* whole_parameter(const Graph& graph, ValueId id) {
  for (const Node* node = graph.producer(id); node != nullptr; node = graph.producer(id)) {
    if (node->op != OpCode::reshape) return nullptr;
    id = node->in(Unary::x);
  }
  const GraphInput* input = graph.input_of(id);
  return input != nullptr && input->kind == InputKind::parameter ? input : nullptr;
}

// The parameter whose shards the node gathers as they are.
const GraphInput* gathered_parameter(const Graph& graph, const Node& node) {
  if (node.op != OpCode::all_gather) return nullptr;
  const Node* shard = graph.producer(node.in(Unary::x));
  if (shard == nullptr || shard->op != OpCode::take_shard) return nullptr;
  return whole_parameter(graph, shard->in(Unary::x));
}

}  // namespace

WeightUse weight_use(const Graph& graph) {
  WeightUse use;
  const auto read = [&](ValueId id) {
    const GraphInput* input = id == kNoValue ? nullptr : whole_parameter(graph, id);
    if (input != nullptr) use.read.insert(input->name);
  };
  for (const Node& node : graph.nodes) {
    if (const GraphInput* input = gathered_parameter(graph, node)) use.gathered.insert(input->name);
    const bool is_of_shard = node.op == OpCode::take_shard || node.op == OpCode::put_shard;
    if (is_of_shard || node.op == OpCode::reshape) continue;
    for (const ValueId id : node.operands) read(id);
  }
  for (const GraphOutput& output : graph.outputs) {
    const Node* node = graph.producer(output.value);
    if (node == nullptr) {
      read(output.value);
    } else if (node->op == OpCode::put_shard && output.updates != kNoValue) {
      use.left.insert(graph.input_of(output.updates)->name);
    }
  }
  return use;
}

}  // namespace octet
