#include "compile/lower.h"

#include <algorithm>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/rewrite/simplify.h"
#include "plan/views.h"

namespace octet {

Graph lower(const Graph& fused, const Catalogue& catalogue) {
  if (fused.phase != Phase::lowered) {
    throw Error(ErrorCode::invalid_argument,
                "expected a graph in phase lowered, as pass fuse leaves it, got {}",
                enum_name(fused.phase));
  }
  const auto lacks_kernel = [&](const Graph& graph, const Node& node) {
    return !is_view(graph, node) && op_def(node.op).decompose != nullptr &&
           !catalogue.choose(graph, node);
  };
  const bool has_all = std::none_of(fused.nodes.begin(), fused.nodes.end(),
                                    [&](const Node& node) { return lacks_kernel(fused, node); });
  return has_all ? fused : decompose(fused, lacks_kernel);
}

}  // namespace octet
