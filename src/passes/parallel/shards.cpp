#include "passes/parallel/shards.h"

#include <algorithm>

#include "base/error.h"

namespace octet {

void cut_input(Graph& graph, ValueId id, int64_t elements) {
  const auto input = std::ranges::find(graph.inputs, id, &GraphInput::value);
  CHECK(input != graph.inputs.end());
  if (input->whole) return;
  Shape& shape = graph.value(id).type.shape;
  input->whole = shape;
  shape = {elements};
}

ValueId gather_around(Builder& builder, const ParallelOptions& options, ValueId input) {
  const ShardAttrs own{.ranks = options.ranks, .rank = options.rank};
  const CollectiveAttrs attrs{
      .ranks = options.ranks, .shape = builder.type(input).shape, .in_place = true};
  return builder.emit1(OpCode::all_gather, attrs,
                       {builder.emit1(OpCode::take_shard, own, {input})});
}

}  // namespace octet
