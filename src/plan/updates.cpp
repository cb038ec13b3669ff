#include "plan/updates.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/error.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "plan/streams.h"
#include "plan/views.h"

namespace octet {
namespace {

// The last node that reads each value or a view of it, by root; kNoNode where none does.
std::vector<NodeId> last_readers(const Graph& graph) {
  std::vector<NodeId> last(graph.values.size(), kNoNode);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph, graph.nodes[n])) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) last[static_cast<size_t>(view_root(graph, id))] = static_cast<NodeId>(n);
    }
  }
  return last;
}

// Whether all ranks' shards are as long as the operand of this gather is.
bool is_even(const Graph& graph, const Node& gather) {
  const int64_t ranks = std::get<CollectiveAttrs>(gather.attrs).ranks;
  return graph.type(gather.in(Unary::x)).n_elems() * ranks ==
         graph.type(gather.out(Unary::y)).n_elems();
}

// Whether the node gathers the shard of `input` as it is.
bool gathers_old(const Graph& graph, const Node& node, ValueId input) {
  if (node.op != OpCode::all_gather || !is_even(graph, node)) return false;
  const Node* taken = graph.producer(node.in(Unary::x));
  return taken != nullptr && taken->op == OpCode::take_shard && is_view(graph, *taken) &&
         taken->in(Unary::x) == input && graph.input_of(input) != nullptr;
}

// Whether the node may write `result` over each operand that lies in the buffer of `input`, of
// which it is the bytes from `offset` on.
bool may_overwrite(const Graph& graph, const Value& result, ValueId input, int64_t offset = 0) {
  const Node& node = graph.node(result.producer);
  for (size_t o = 0; o < node.operands.size(); ++o) {
    const ValueId id = node.operands[o];
    if (id == kNoValue || view_root(graph, id) != input) continue;
    if (gathers_old(graph, node, input)) continue;  // it is marked then
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

namespace {

class ShardPlacer {
 public:
  ShardPlacer(const Graph& graph, int64_t rank)
      : graph_(graph), result_(graph), rank_(rank), last_reader_(last_readers(graph)) {
    for (const GraphOutput& output : graph.outputs) taken_.insert(view_root(graph, output.value));
  }

  Graph run() {
    for (const GraphOutput& output : graph_.outputs) {
      if (output.updates != kNoValue) place(output);
    }
    for (const Node& node : result_.nodes) check_operands_alike(node);
    return std::move(result_);
  }

 private:
  // What ranks read of each other lies at one address on all, but for shards in place.
  void check_operands_alike(const Node& node) const {
    if (!is_collective(node.op) || std::get<CollectiveAttrs>(node.attrs).in_place) return;
    for (ValueId id : node.operands) {
      for (const Node* made = nullptr; id != kNoValue; id = made->in(Unary::x)) {
        made = graph_.producer(id);
        if (made == nullptr || !is_view(graph_, *made)) break;
        CHECK(made->op != OpCode::take_shard);
      }
    }
  }

  void place(const GraphOutput& output) {
    const NodeId id = graph_.value(view_root(graph_, output.value)).producer;
    if (id == kNoNode) return;
    const Node& node = graph_.node(id);
    if (gathers_old(graph_, node, output.updates)) return gather_old(id);
    if (node.op == OpCode::put_shard) {
      place_put(id, output.updates);
    } else if (node.op == OpCode::all_gather && is_even(graph_, node)) {
      if (may_lie(node.in(Unary::x), {output.updates})) collective(id).in_place = true;
    }
  }
  // The whole is the input itself, or what has been gathered there.
  void place_put(NodeId id, ValueId input) {
    const Node& put = graph_.node(id);
    const ValueId whole = view_root(graph_, put.in(PutShard::x));
    const Node* gather = graph_.producer(whole);
    const bool is_there =
        whole == input || (gather != nullptr && gathers_old(graph_, *gather, input));
    if (!is_there || !may_lie(put.in(PutShard::shard), {input, whole})) return;
    if (gather != nullptr) gather_old(graph_.value(whole).producer);
    std::get<ShardAttrs>(result_.nodes[static_cast<size_t>(id)].attrs).in_place = true;
  }
  void gather_old(NodeId id) {
    const Node& taken = *graph_.producer(graph_.node(id).in(Unary::x));
    CHECK(std::get<ShardAttrs>(taken.attrs).rank == rank_);
    collective(id).in_place = true;
  }
  CollectiveAttrs& collective(NodeId id) {
    return std::get<CollectiveAttrs>(result_.nodes[static_cast<size_t>(id)].attrs);
  }

  // Whether the shard may be made in its place of all of these, which share their bytes.
  bool may_lie(ValueId shard, std::initializer_list<ValueId> wholes) {
    const NodeId maker = graph_.value(shard).producer;
    if (maker == kNoNode) return false;
    const Node& node = graph_.node(maker);
    if (is_view(graph_, node) || is_collective(node.op)) return false;
    const int64_t n_bytes = graph_.type(shard).n_bytes(), offset = rank_ * n_bytes;
    for (const ValueId whole : wholes) {
      if (offset + n_bytes > graph_.type(whole).n_bytes() ||
          last_reader_[static_cast<size_t>(whole)] > maker ||
          !may_overwrite(graph_, graph_.value(shard), whole, offset))
        return false;
    }
    return taken_.insert(shard).second;
  }

  const Graph& graph_;
  Graph result_;
  int64_t rank_;
  std::vector<NodeId> last_reader_;
  std::set<ValueId> taken_;
};

}  // namespace

Graph place_shards(const Graph& graph, int64_t rank) {
  return ShardPlacer(graph, rank).run();
}

ValueId new_shard(const Graph& graph, const GraphOutput& output) {
  if (output.updates == kNoValue) return kNoValue;
  const Node* put = graph.producer(output.value);
  if (put != nullptr && put->op == OpCode::put_shard && is_view(graph, *put))
    return put->in(PutShard::shard);
  const Node* node = graph.producer(view_root(graph, output.value));
  const bool is_placed = node != nullptr && node->op == OpCode::all_gather &&
                         std::get<CollectiveAttrs>(node->attrs).in_place;
  if (!is_placed || gathers_old(graph, *node, output.updates)) return kNoValue;
  return node->in(Unary::x);
}

}  // namespace octet
