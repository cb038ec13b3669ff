// One node of a graph as a program of its own, on inputs made up for it.
#pragma once

#include <memory>

#include "runtime/bound_graph.h"

namespace octet {

class NodeRunner {
 public:
  // Floats are between 1/4 and 1, indices between 0 and 15, all else 0. States and parameters that
  // the op may overwrite are overwritten.
  NodeRunner(const Graph& graph, const Node& node, Device& device, Catalogue& catalogue);

  void run() { alone_->bound.run(); }

  const Graph& graph() const { return alone_->plan.graph; }
  const Node& node() const { return graph().nodes.front(); }
  const KernelChoice& kernel() const { return alone_->plan.steps.front().kernel; }

 private:
  std::unique_ptr<BoundGraph> alone_;
};

// Made-up values in all inputs of a small graph, as NodeRunner's.
void write_made_up(BoundPlan& bound, const Graph& graph);

// "[2048,512] x [512,1408] -> [2048,1408]": the operands' shapes, scalars left out.
std::string shape_text(const Graph& graph, const Node& node);

}  // namespace octet
