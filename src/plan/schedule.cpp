#include "plan/schedule.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/error.h"
#include "ir/op_def.h"
#include "plan/streams.h"
#include "plan/updates.h"
#include "plan/views.h"

namespace octet {
namespace {

// However few their bytes are, each takes its time to start.
constexpr size_t kMaxInBucket = 16;

// For each node, how many things it still waits for: operands, and other readers of the inputs that
// it overwrites.
class Scheduler {
 public:
  Scheduler(const Graph& graph, int64_t bucket_bytes)
      : graph_(graph),
        readers_(graph.values.size()),
        waits_(graph.nodes.size(), 0),
        dependants_(graph.nodes.size()),
        done_(graph.nodes.size(), false),
        needs_(graph.nodes.size()),
        bucket_bytes_(bucket_bytes) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId id : graph.nodes[n].operands) {
        if (id == kNoValue) continue;
        const NodeId producer = graph.value(id).producer;
        if (producer != kNoNode) depend(static_cast<NodeId>(n), producer);
        if (!is_view(graph, graph.nodes[n]))
          readers_[view_root(graph, id)].push_back(static_cast<NodeId>(n));
      }
    }
    for (const GraphOutput& output : graph.outputs) {
      if (output.updates == kNoValue) continue;
      const ValueId root = view_root(graph, output.value), shard = new_shard(graph, output);
      const NodeId writer = graph.value(root).producer;
      if (writer == kNoNode) continue;
      const NodeId maker = shard == kNoValue ? kNoNode : graph.value(shard).producer;
      for (const NodeId reader : readers_[output.updates]) {
        if (reader != writer) depend(writer, reader);
        if (maker != kNoNode && reader != maker) depend(maker, reader);
      }
    }
  }

  std::vector<NodeId> run() {
    const ById<std::vector<NodeId>> early = prefetched();
    const NodeId last = last_gradient(), beside = computed_beside_sum(last);
    for (next_ = 0; next_ < static_cast<NodeId>(graph_.nodes.size()); ++next_) {
      prefetch(early[next_]);
      next_ == beside ? issue_without(next_) : take(next_);
      if (next_ == last && beside != kNoNode) take(beside);
    }
    finish();
    CHECK(order_.size() == graph_.nodes.size());
    return std::move(order_);
  }

 private:
  bool is_update(NodeId node) const { return graph_.node(node).tag.role == Role::update; }

  // In its turn; what cannot run yet is released later.
  void take(NodeId node) {
    if (done_[node] || widens_state(node)) return;
    if (!is_update(node)) wait_for(node);
    if (waits_[node] == 0) release(node);
  }

  // Sums that the gradient's would have begun with do not wait for it.
  void issue_without(NodeId gradient) {
    if (held_bytes_ + summed_bytes(gradient) >= bucket_bytes_) issue();
  }

  // How many bytes of what the node makes are summed over the ranks; 0 where nothing is.
  int64_t summed_bytes(NodeId n) const {
    for (const NodeId reader : dependants_[n]) {
      const Node& node = graph_.node(reader);
      if (op_def(node.op).scatters) return graph_.type(node.in(Reduce::x)).n_bytes();
    }
    return 0;
  }
  // Last gradient of the backward, if its sum begins by itself once it is made; else kNoNode.
  NodeId last_gradient() const {
    for (auto n = static_cast<NodeId>(graph_.nodes.size()) - 1; n >= 0; --n) {
      if (is_update(n) || summed_bytes(n) == 0) continue;
      return summed_bytes(n) >= bucket_bytes_ ? n : kNoNode;
    }
    return kNoNode;
  }
  // The last GEMM before it that only a sum needs, and that takes longer than that sum's bytes do.
  NodeId computed_beside_sum(NodeId last) const {
    constexpr double kMinFlopsPerByte = 4096;  // E4M3 and the link of one NVIDIA H100
    for (NodeId n = last - 1; n >= 0; --n) {
      if (graph_.node(n).op != OpCode::gemm) continue;
      const auto n_bytes = static_cast<double>(summed_bytes(n));
      const bool is_needed =
          std::ranges::any_of(dependants_[n], [&](NodeId then) { return !is_update(then); });
      if (n_bytes == 0 || is_needed) continue;
      return cost_of(graph_, graph_.node(n)).flops >= kMinFlopsPerByte * n_bytes ? n : kNoNode;
    }
    return kNoNode;
  }

  // There from the beginning.
  bool is_shard_of_input(NodeId n) const {
    const Node& node = graph_.node(n);
    return node.op == OpCode::take_shard && is_view(graph_, node) &&
           graph_.producer(node.in(Unary::x)) == nullptr;
  }

  // A state or a gradient that is widened takes more memory: that is done just before whoever
  // reads it.
  bool widens_state(NodeId n) const {
    const Node& node = graph_.node(n);
    const bool has_scale = node.op == OpCode::rescale || node.op == OpCode::dequantize;
    if (!is_update(n) || (!has_scale && node.op != OpCode::cast)) return false;
    const bool is_given = std::ranges::any_of(
        graph_.outputs, [&](const GraphOutput& output) { return output.value == node.out(0); });
    return !is_given && graph_.type(node.out(0)).n_bytes() > graph_.type(node.in(0)).n_bytes();
  }
  void depend(NodeId node, NodeId on) {
    if (is_shard_of_input(on)) return;
    if (widens_state(on)) {
      for (const ValueId id : graph_.node(on).operands) {
        const NodeId producer = graph_.value(id).producer;
        if (producer != kNoNode) depend(node, producer);
      }
      needs_[node].push_back(on);
      return;
    }
    ++waits_[node];
    dependants_[on].push_back(node);
  }

  // By node: what begins before it, which is where the layer before its readers' begins: gathers of
  // parameters, or of what is made of them; and another layer before, what these are made of by
  // collectives (the maxima that quantize them), so that they wait for none.
  ById<std::vector<NodeId>> prefetched() const {
    ById<std::vector<NodeId>> early(graph_.nodes.size());
    const ById<bool> is_constant = constants();
    NodeId before = 0, previous = 0, begin = 0;
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      const Tag &tag = graph_.node(n).tag, &first = graph_.node(begin).tag;
      if (tag.role != first.role || tag.layer != first.layer) {
        before = previous;
        previous = begin;
        begin = n;
      }
      if (!op_def(graph_.node(n).op).gathers || !is_constant[n]) continue;
      early[previous].push_back(n);
      add_collectives(n, early[before]);
    }
    return early;
  }
  // Nodes that no batch enters, but updates.
  ById<bool> constants() const {
    ById<bool> result(graph_.nodes.size());
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      result[n] = !is_update(n) && std::ranges::all_of(operands(n), [&](ValueId id) {
        const GraphInput* input = graph_.input_of(id);
        return input == nullptr ? result[graph_.value(id).producer]
                                : input->kind != InputKind::batch;
      });
    }
    return result;
  }
  ValueIds operands(NodeId n) const {
    ValueIds present;
    for (const ValueId id : graph_.node(n).operands)
      if (id != kNoValue) present.push_back(id);
    return present;
  }
  void add_collectives(NodeId n, std::vector<NodeId>& found) const {
    for (const ValueId id : operands(n)) {
      const NodeId producer = graph_.value(id).producer;
      if (producer == kNoNode) continue;
      if (is_collective(graph_.node(producer).op))
        found.push_back(producer);
      else
        add_collectives(producer, found);
    }
  }
  // Maxima first, and all that is computed before any of what is gathered: one run.
  void prefetch(const std::vector<NodeId>& early) {
    if (early.empty()) return;
    for (const bool gathers : {false, true}) {
      const auto is_turn = [&](NodeId n) { return op_def(graph_.node(n).op).gathers == gathers; };
      for (const NodeId node : early)
        if (is_turn(node)) release_operands(node);
      for (const NodeId node : early)
        if (is_turn(node) && waits_[node] == 0) release(node);  // else in its turn
    }
    issue();
  }
  void release_operands(NodeId node) {
    for (const ValueId id : operands(node)) {
      const NodeId producer = graph_.value(id).producer;
      if (producer == kNoNode || done_[producer]) continue;
      release_operands(producer);
      wait_for(producer);
      if (waits_[producer] == 0) release(producer);
    }
  }

  // Runs the node, and then what has waited for it: updates at once, others if their turn is over.
  void release(NodeId first) {
    if (done_[first]) return;
    std::vector<NodeId> ready = {first};
    for (size_t i = 0; i < ready.size(); ++i) {
      const NodeId node = ready[i];
      done_[node] = true;
      for (const NodeId widening : needs_[node]) {
        if (!done_[widening]) order_.push_back(widening);
        done_[widening] = true;
      }
      if (is_collective(graph_.node(node).op)) {
        bucket_.push_back(node);
        held_bytes_ += held_by(node);
      } else {
        order_.push_back(node);
        follow(node, ready);
      }
    }
    if (held_bytes_ >= bucket_bytes_ || bucket_.size() >= kMaxInBucket) issue();
  }
  // Bytes that wait in memory for this collective: its operand, and what a tensor's amax is of,
  // which is to be quantized with the ranks' common one.
  int64_t held_by(NodeId node) const {
    const ValueId x = graph_.node(node).in(0);
    const Node* producer = graph_.producer(x, OpCode::amax);
    int64_t bytes = graph_.type(x).n_bytes();
    if (producer == nullptr || x != producer->out(AmaxOp::amax)) return bytes;
    for (const ValueId id : producer->operands)
      if (graph_.producer(id) != nullptr) bytes += graph_.type(id).n_bytes();
    return bytes;
  }
  void follow(NodeId node, std::vector<NodeId>& ready) {
    for (const NodeId then : dependants_[node]) {
      if (widens_state(then)) continue;
      const bool now = then < next_ || is_update(then);
      if (--waits_[then] == 0 && now) ready.push_back(then);
    }
  }

  // Lets the collectives begin that have gathered, and what waits for the oldest run go on where
  // something has been computed beside it. What comes of that may fill another bucket.
  void issue() {
    if (bucket_.empty()) return;
    const bool went_on = !runs_.empty() && order_.size() > runs_.front().end;
    begin();
    if (!is_settling_ && went_on && runs_.size() > 1) settle();
  }
  void begin() {
    const bool is_read =
        std::ranges::any_of(bucket_, [&](NodeId node) { return !dependants_[node].empty(); });
    order_.insert(order_.end(), bucket_.begin(), bucket_.end());
    if (is_read) runs_.push_back({.nodes = bucket_, .end = order_.size()});
    bucket_.clear();
    held_bytes_ = 0;
  }
  void settle() {
    is_settling_ = true;
    std::vector<NodeId> ready;
    for (const NodeId node : runs_.front().nodes) follow(node, ready);
    runs_.pop_front();
    for (const NodeId node : ready) release(node);
    is_settling_ = false;
  }
  // Until this node may run, or all have run.
  void wait_for(NodeId node) {
    while (waits_[node] > 0 && !(runs_.empty() && bucket_.empty()))
      runs_.empty() ? begin() : settle();
  }
  void finish() {
    while (!(runs_.empty() && bucket_.empty())) bucket_.empty() ? settle() : begin();
  }

  const Graph& graph_;
  ById<std::vector<NodeId>> readers_;  // of each value and its views, by root
  ById<int> waits_;
  ById<std::vector<NodeId>> dependants_;
  ById<bool> done_;
  ById<std::vector<NodeId>> needs_;  // what is widened just before the node
  std::vector<NodeId> order_;
  NodeId next_ = 0;
  int64_t bucket_bytes_ = 0, held_bytes_ = 0;
  std::vector<NodeId> bucket_;  // collectives that wait to begin
  struct Run {
    std::vector<NodeId> nodes;
    size_t end = 0;  // of it in the order
  };
  std::deque<Run> runs_;  // begun, with readers that may not run yet
  bool is_settling_ = false;
};

}  // namespace

std::vector<NodeId> schedule(const Graph& graph, int64_t bucket_bytes) {
  return Scheduler(graph, bucket_bytes).run();
}

}  // namespace octet
