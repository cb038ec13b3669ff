#include "plan/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace octet {
namespace {

// For each node, how many things it still waits for: operands, and other readers of the inputs that
// it overwrites.
class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph),
        uses_(uses(graph)),
        waits_(graph.nodes.size(), 0),
        dependants_(graph.nodes.size()),
        done_(graph.nodes.size(), false) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId id : graph.nodes[n].operands) {
        if (id == kNoValue) continue;
        const NodeId producer = graph.values[static_cast<size_t>(id)].producer;
        if (producer != kNoNode) depend(static_cast<NodeId>(n), producer);
      }
    }
    for (const GraphOutput& output : graph.outputs) {
      if (output.updates == kNoValue) continue;
      const NodeId writer = graph.values[static_cast<size_t>(output.value)].producer;
      if (writer == kNoNode) continue;
      for (const NodeId reader : uses_[static_cast<size_t>(output.updates)]) {
        if (reader != writer) depend(writer, reader);
      }
    }
  }

  std::vector<NodeId> run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto id = static_cast<NodeId>(n);
      if (graph_.nodes[n].tag.role == Role::update && waits_[n] > 0) continue;  // released below
      if (!done_[n]) finish(id);
    }
    CHECK(order_.size() == graph_.nodes.size());
    return std::move(order_);
  }

 private:
  void depend(NodeId node, NodeId on) {
    ++waits_[static_cast<size_t>(node)];
    dependants_[static_cast<size_t>(on)].push_back(node);
  }
  void finish(NodeId node) {
    CHECK(waits_[static_cast<size_t>(node)] == 0);
    done_[static_cast<size_t>(node)] = true;
    order_.push_back(node);
    for (const NodeId next : dependants_[static_cast<size_t>(node)]) {
      const auto n = static_cast<size_t>(next);
      if (--waits_[n] == 0 && graph_.nodes[n].tag.role == Role::update && !done_[n]) finish(next);
    }
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> uses_;
  std::vector<int> waits_;
  std::vector<std::vector<NodeId>> dependants_;
  std::vector<bool> done_;
  std::vector<NodeId> order_;
};

}  // namespace

std::vector<NodeId> schedule(const Graph& graph) {
  return Scheduler(graph).run();
}

}  // namespace octet
