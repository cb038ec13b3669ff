// A node taken out of its graph.
#pragma once

#include <fmt/format.h>

#include <map>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace octet {

// The graph of one node: its operands are inputs, but for what `fill` makes, which kernels read
// from the graph; its results are outputs.
class OneNode {
 public:
  OneNode(const Graph& from, const Node& node) {
    graph_.name = "proof";
    graph_.phase = Phase::lowered;
    Builder b(graph_);
    std::map<ValueId, ValueId> ids{{kNoValue, kNoValue}};
    const auto add = [&](ValueId id, size_t slot) {
      if (const Node* constant = from.producer(id, OpCode::fill)) {
        b.tag = constant->tag;
        return b.emit_typed(constant->op, constant->attrs, {}, result_types(from, *constant))[0];
      }
      const GraphInput* input = from.input_of(id);
      operands.push_back(slot);
      return b.input(input == nullptr ? InputKind::batch : input->kind, fmt::format("x{}", slot),
                     from.type(id));
    };
    ValueIds own;
    for (size_t slot = 0; slot < node.operands.size(); ++slot) {
      const ValueId id = node.operands[slot];
      if (!ids.contains(id)) ids[id] = add(id, slot);
      own.push_back(ids[id]);
    }
    b.tag = {};
    const ValueIds made = b.emit_typed(node.op, node.attrs, own, result_types(from, node));
    for (size_t slot = 0; slot < made.size(); ++slot) {
      if (made[slot] == kNoValue) continue;
      b.output(fmt::format("y{}", slot), made[slot]);
      results.push_back(slot);
    }
  }
  const Graph& graph() const { return graph_; }

  std::vector<size_t> operands, results;  // slots of the node, in the order of inputs and outputs

 private:
  Graph graph_;
};

}  // namespace octet
