#include "passes/parallel/shard_updates.h"
#include "passes/parallel/shards.h"

namespace octet {

Graph gather_left(const Graph& update, const ParallelOptions& options) {
  Graph graph;
  graph.name = update.name;
  graph.phase = update.phase;
  Builder builder(graph);
  builder.tag = Tag{.role = Role::update, .origin = "ranks"};
  for (const GraphOutput& output : update.outputs) {
    const GraphInput* input = update.input_of(output.updates);
    if (input == nullptr || update.type(output.value) == update.type(input->value)) continue;
    const ValueId weight = builder.input(input->kind, input->name, update.type(input->value));
    builder.next(weight, gather_around(builder, options, weight));
  }
  return graph;
}

}  // namespace octet
