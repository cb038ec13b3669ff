#include "plan/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "plan/views.h"

namespace octet {
namespace {

// For each node, how many things it still waits for: operands, and other readers of the inputs that
// it overwrites.
class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph),
        readers_(graph.values.size()),
        waits_(graph.nodes.size(), 0),
        dependants_(graph.nodes.size()),
        done_(graph.nodes.size(), false) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId id : graph.nodes[n].operands) {
        if (id == kNoValue) continue;
        const NodeId producer = graph.values[static_cast<size_t>(id)].producer;
        if (producer != kNoNode) depend(static_cast<NodeId>(n), producer);
        if (!is_view(graph.nodes[n]))
          readers_[static_cast<size_t>(view_root(graph, id))].push_back(static_cast<NodeId>(n));
      }
    }
    for (const GraphOutput& output : graph.outputs) {
      if (output.updates == kNoValue) continue;
      const ValueId root = view_root(graph, output.value);
      const NodeId writer = graph.values[static_cast<size_t>(root)].producer;
      if (writer == kNoNode) continue;
      for (const NodeId reader : readers_[static_cast<size_t>(output.updates)]) {
        if (reader != writer) depend(writer, reader);
      }
    }
  }

  std::vector<NodeId> run() {
    for (next_ = 0; next_ < static_cast<NodeId>(graph_.nodes.size()); ++next_) {
      if (waits_[static_cast<size_t>(next_)] == 0) release(next_);  // else released below
    }
    CHECK(order_.size() == graph_.nodes.size());
    return std::move(order_);
  }

 private:
  void depend(NodeId node, NodeId on) {
    ++waits_[static_cast<size_t>(node)];
    dependants_[static_cast<size_t>(on)].push_back(node);
  }
  // Runs the node, and then what has waited for it: updates at once, others if their turn is over.
  void release(NodeId first) {
    if (done_[static_cast<size_t>(first)]) return;
    std::vector<NodeId> ready = {first};
    for (size_t i = 0; i < ready.size(); ++i) {
      const NodeId node = ready[i];
      done_[static_cast<size_t>(node)] = true;
      order_.push_back(node);
      for (const NodeId then : dependants_[static_cast<size_t>(node)]) {
        const auto n = static_cast<size_t>(then);
        const bool now = then < next_ || graph_.nodes[n].tag.role == Role::update;
        if (--waits_[n] == 0 && now) ready.push_back(then);
      }
    }
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;  // of each value and its views, by root
  std::vector<int> waits_;
  std::vector<std::vector<NodeId>> dependants_;
  std::vector<bool> done_;
  std::vector<NodeId> order_;
  NodeId next_ = 0;
};

}  // namespace

std::vector<NodeId> schedule(const Graph& graph) {
  return Scheduler(graph).run();
}

}  // namespace octet
