#include "passes/parallel/late_weights.h"

#include <algorithm>
#include <string>

#include "ir/sharding.h"
#include "passes/parallel/shards.h"

namespace octet {
namespace {

bool is_even(const TensorType& type, int64_t ranks) {
  return shard_elems(type.n_elems(), ranks) * ranks == type.n_elems();
}

bool reads(const Node& node, ValueId id) {
  return std::ranges::count(node.operands, id) > 0;
}

// Whether it takes the maximum of what updates make alone, which is that of their shards.
bool measures_updates(const Graph& graph, const Node& node) {
  return node.op == OpCode::amax && std::ranges::all_of(node.operands, [&](ValueId id) {
           const Node* producer = graph.producer(id);
           return producer != nullptr && is_update(*producer);
         });
}

bool may_stay(const Graph& graph, const GraphOutput& output) {
  bool is_made = false;
  for (const Node& node : graph.nodes) {
    if (reads(node, output.value) && !measures_updates(graph, node)) return false;
    if (is_made && reads(node, output.updates)) return false;
    is_made = is_made || std::ranges::count(node.results, output.value) > 0;
  }
  return is_made;
}

}  // namespace

LateWeights find_late_weights(const Graph& graph, const std::map<ValueId, ValueId>& gradients,
                              const ParallelOptions& options) {
  std::map<std::string, ValueId> weights;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::parameter && is_even(graph.type(input.value), options.ranks))
      weights[input.name] = input.value;
  }
  const bool begins = std::ranges::any_of(
      gradients, [](const auto& gradient) { return gradient.second == kNoValue; });
  LateWeights late;
  for (const GraphOutput& output : graph.outputs) {
    const GraphInput* input = graph.input_of(output.updates);
    if (input == nullptr) continue;
    if (input->key.use == StateUse::accumulator) {
      const auto weight = weights.find(input->key.owner);
      if (begins && weight != weights.end()) late.gathered.insert(weight->second);
    } else if (weights.contains(input->name) && may_stay(graph, output)) {
      late.next.insert(output.value);
      if (begins) late.gathered.insert(input->value);
    }
  }
  return late;
}

Graph gather_late_weights(const Graph& parameters, const ParallelOptions& options) {
  Graph graph = parameters;
  Builder builder(graph);
  builder.tag = Tag{.role = Role::update, .origin = "ranks"};
  for (const GraphInput& input : parameters.inputs) {
    const TensorType& type = parameters.type(input.value);
    if (!is_even(type, options.ranks)) continue;
    const ShardAttrs own{.ranks = options.ranks, .rank = options.rank};
    const ValueId shard = builder.emit1(OpCode::take_shard, own, {input.value});
    const CollectiveAttrs attrs{.ranks = options.ranks, .shape = type.shape};
    builder.next(input.value, builder.emit1(OpCode::all_gather, attrs, {shard}));
  }
  graph.phase = Phase::sharded;
  return graph;
}

}  // namespace octet
