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

ValueId max_over_ranks(Builder& builder, int64_t ranks, ValueId x) {
  const CollectiveAttrs attrs{.ranks = ranks, .reduction = RankReduction::max, .shape = {}};
  return builder.emit1(OpCode::all_reduce, attrs, {x});
}

}  // namespace octet
