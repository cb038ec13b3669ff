#include "plan/updates.h"

#include <algorithm>
#include <set>

#include "ir/builder.h"
#include "ir/op_def.h"
#include "plan/streams.h"
#include "plan/views.h"

namespace octet {
namespace {

// The last node that reads each value or a view of it, by root; kNoNode where none does.
ById<NodeId> last_readers(const Graph& graph) {
  ById<NodeId> last(graph.values.size(), kNoNode);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph, graph.nodes[n])) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) last[view_root(graph, id)] = static_cast<NodeId>(n);
    }
  }
  return last;
}

// True if the node may write `result` over each operand that lies in the buffer of `input`, of
// which it is the bytes from `offset` on.
bool may_overwrite(const Graph& graph, const Value& result, ValueId input, int64_t offset = 0) {
  const Node& node = graph.node(result.producer);
  for (size_t o = 0; o < node.operands.size(); ++o) {
    const ValueId id = node.operands[o];
    if (id == kNoValue || view_root(graph, id) != input) continue;
    const bool is_same =
        view_offset(graph, id) == offset && graph.type(id).n_bytes() == result.type.n_bytes();
    if (!is_same) return false;
    const auto pairs = op_def(node.op).inplace;
    const bool legal = std::any_of(pairs.begin(), pairs.end(), [&](InplacePair pair) {
      return pair.result == result.result_index && static_cast<size_t>(pair.operand) == o;
    });
    if (!legal) return false;
  }
  return true;
}

// True if all ranks' shards are as long as the operand of this gather is.
bool is_even(const Graph& graph, const Node& gather) {
  const int64_t ranks = std::get<CollectiveAttrs>(gather.attrs).ranks;
  return graph.type(gather.in(Unary::x)).n_elems() * ranks ==
         graph.type(gather.out(Unary::y)).n_elems();
}

}  // namespace

const GraphInput* updated_parameter(const Graph& graph, const Node& node) {
  if (node.tag.role != Role::update || node.tag.origin.empty()) return nullptr;
  const GraphInput* input = graph.find_input(node.tag.origin);
  return input != nullptr && input->kind == InputKind::parameter ? input : nullptr;
}

const Node* gradient_maker(const Graph& graph, ValueId gradient) {
  const Node* maker = graph.producer(gradient);
  while (maker != nullptr && maker->op == OpCode::rescale && maker->tag.role == Role::update)
    maker = graph.producer(maker->in(Rescale::x));
  return maker;
}

ValueId read_gradient(const Graph& graph, const Node& node) {
  for (const ValueId id : node.operands) {
    if (id == kNoValue || !is_float(graph.type(id).dtype)) continue;
    const Node* maker = gradient_maker(graph, id);
    const GraphInput* input = graph.input_of(id);
    const bool is_made =
        maker != nullptr && (maker->tag.role == Role::backward ||
                             (op_def(maker->op).sums && !graph.type(id).shape.empty()));
    const bool is_given = input != nullptr && (input->key.use == StateUse::accumulator ||
                                               input->kind == InputKind::batch);
    if (is_made || is_given) return id;
  }
  return kNoValue;
}

Graph copy_shared_updates(const Graph& graph, int64_t rank) {
  const ById<NodeId> last_reader = last_readers(graph);
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
    const bool is_shard = new_shard(result, output) == output.value;
    const int64_t offset = is_shard ? rank * result.type(output.value).n_bytes() : 0;
    const bool shared = producer == kNoNode || !taken.insert(root).second ||
                        last_reader[output.updates] > producer ||
                        !may_overwrite(graph, graph.value(root), output.updates, offset);
    if (shared) output.value = copy(output.value);
  }
  return result;
}

ValueId new_shard(const Graph& graph, const GraphOutput& output) {
  if (output.updates == kNoValue) return kNoValue;
  if (graph.type(output.value).n_elems() < graph.type(output.updates).n_elems())
    return output.value;
  const Node* node = graph.producer(view_root(graph, output.value));
  return node != nullptr && gathers_in_place(*node) ? node->in(Unary::x) : kNoValue;
}

Graph gather_in_place(const Graph& graph, int64_t rank) {
  const ById<NodeId> last_reader = last_readers(graph);
  std::set<ValueId> taken;
  for (const GraphOutput& output : graph.outputs) taken.insert(view_root(graph, output.value));
  Graph result = graph;
  for (const GraphOutput& output : graph.outputs) {
    if (output.updates == kNoValue) continue;
    const NodeId id = graph.value(view_root(graph, output.value)).producer;
    if (id == kNoNode || !op_def(graph.node(id).op).gathers) continue;
    const Node& gather = graph.node(id);
    const ValueId shard = gather.in(Unary::x);
    const NodeId maker = graph.value(shard).producer;
    if (maker == kNoNode || !is_even(graph, gather)) continue;
    const bool is_made_here =
        !is_view(graph, graph.node(maker)) && !is_collective(graph.node(maker).op);
    const bool is_last = last_reader[output.updates] <= maker;
    const int64_t offset = rank * graph.type(shard).n_bytes();
    if (is_made_here && is_last && taken.insert(shard).second &&
        may_overwrite(graph, graph.value(shard), output.updates, offset))
      std::get<CollectiveAttrs>(result.node(id).attrs).in_place = true;
  }
  return result;
}

}  // namespace octet
