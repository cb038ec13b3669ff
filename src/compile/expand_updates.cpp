#include "compile/expand_updates.h"

#include "optim/rules/rule.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

Graph expand_updates(const Graph& graph, const OptimPolicy& policy) {
  Rewriter rewriter(graph);
  Constants constants(rewriter.builder());
  const PolicyBySize by_size(policy);
  for (const Node& node : graph.nodes) {
    if (node.op != OpCode::update) {
      rewriter.copy(node);
      continue;
    }
    rewriter.builder().tag = node.tag;
    UpdateBuilder update(rewriter.builder(), constants, node, rewriter.map(node.operands), by_size);
    update_rule(update.attrs().rule).build(update);
    rewriter.set(node.results, update.results());
  }
  return rewriter.finish();
}

}  // namespace octet
