// A small graph that runs by itself, apart from a model's program.
#pragma once

#include "plan/catalogue.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet {

// A lowered graph, planned and bound, with memory of its own; its inputs are laid out as they come.
// Throws as make_plan() and BoundPlan do.
struct BoundGraph {
  BoundGraph(const Graph& graph, Device& device, Catalogue& catalogue);
  BoundGraph(const BoundGraph&) = delete;
  BoundGraph& operator=(const BoundGraph&) = delete;

  Plan plan;
  Arenas arenas;
  BoundPlan bound;
};

}  // namespace octet
