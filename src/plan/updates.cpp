#include "plan/updates.h"

#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "plan/views.h"

namespace octet {
namespace {

// The last node that reads each value or a view of it, by root; kNoNode where none does.
std::vector<NodeId> last_readers(const Graph& graph) {
  std::vector<NodeId> last(graph.values.size(), kNoNode);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph.nodes[n])) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) last[static_cast<size_t>(view_root(graph, id))] = static_cast<NodeId>(n);
    }
  }
  return last;
}

// Whether the node may write `result` over each operand that lies in the buffer of `input`.
bool may_overwrite(const Graph& graph, const Value& result, ValueId input) {
  const Node& node = graph.node(result.producer);
  for (size_t o = 0; o < node.operands.size(); ++o) {
    if (node.operands[o] == kNoValue || view_root(graph, node.operands[o]) != input) continue;
    const auto pairs = op_def(node.op).inplace;
    const bool legal = std::any_of(pairs.begin(), pairs.end(), [&](InplacePair pair) {
      return pair.result == result.result_index && static_cast<size_t>(pair.operand) == o;
    });
    if (!legal) return false;
  }
  return true;
}

}  // namespace

Graph copy_shared_updates(const Graph& graph) {
  const std::vector<NodeId> last_reader = last_readers(graph);
  std::set<ValueId> updated, taken;
  for (const GraphOutput& output : graph.outputs) updated.insert(output.updates);
  Graph result = graph;
  Builder builder(result);
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "copy"};
  const auto copy = [&](ValueId id) { return builder.unary(OpCode::stop_gradient, id); };
  for (GraphOutput& output : result.outputs) {
    const ValueId root = view_root(graph, output.value);
    if (root == output.updates) continue;  // the old value stays
    const NodeId producer = graph.value(root).producer;
    const bool old_value = producer == kNoNode && updated.count(root) > 0;
    // Two inputs may take each other's old value: it is saved before either is written.
    if (old_value) output.value = copy(output.value);
    if (output.updates == kNoValue) continue;
    const bool shared = producer == kNoNode || !taken.insert(root).second ||
                        last_reader[static_cast<size_t>(output.updates)] > producer ||
                        !may_overwrite(graph, graph.value(root), output.updates);
    if (shared) output.value = copy(output.value);
  }
  return result;
}

}  // namespace octet
