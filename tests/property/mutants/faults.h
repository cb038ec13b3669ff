// Seeded faults: each is put into many random graphs, and the verifier or the comparison of meaning
// has to see it.
//
// A structural fault makes the graph illegal: the verifier must refuse every graph that has it. A
// fault of meaning leaves it legal: outputs, or for wrong gradients the slope along a direction,
// must differ. Some places hide a fault of meaning (a swapped maximum, a value squashed to 1), so
// the share of graphs in which it is seen has a floor, kSeenTenths.
#pragma once

#include <functional>

#include "base/error.h"
#include "ir/verify.h"
#include "passes/rewrite/rewrite.h"
#include "property/random_graphs/generator.h"
#include "property/random_graphs/meaning.h"

namespace octet::mutants {

inline constexpr int kSeenTenths = 4;

// Puts the fault into the graph; false where it has no place for it.
using Fault = std::function<bool(Graph&)>;

struct Mutant {
  const char* name;
  Fault fault;
};

inline Node* find_node(Graph& graph, const std::function<bool(const Node&)>& wanted) {
  for (Node& node : graph.nodes) {
    if (wanted(node)) return &node;
  }
  return nullptr;
}
inline Value& value(Graph& graph, ValueId id) {
  return graph.value(id);
}

}  // namespace octet::mutants
