#include "runtime/bound_graph.h"

namespace octet {
namespace {

Plan planned(const Graph& graph, const Catalogue& catalogue) {
  Layout layout;
  layout.add_inputs(graph);
  return make_plan(graph, layout, catalogue);
}

}  // namespace

BoundGraph::BoundGraph(const Graph& graph, Device& device, Catalogue& catalogue)
    : plan(planned(graph, catalogue)),
      arenas(device, plan.arena_bytes),
      bound(plan, catalogue, arenas) {}

}  // namespace octet
