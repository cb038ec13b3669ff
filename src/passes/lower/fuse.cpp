#include "passes/lower/fuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "passes/lower/fuse_amax.h"
#include "passes/lower/fuse_rules.h"
#include "passes/rewrite.h"
#include "passes/simplify.h"

namespace octet {

Matcher::Matcher(const Graph& graph) : graph_(graph), uses_(uses(graph)) {
  for (const GraphOutput& output : graph.outputs) handed_out_.insert(output.value);
}

const Node* Matcher::producer(ValueId id) const {
  if (id == kNoValue) return nullptr;
  const NodeId n = graph_.values[static_cast<size_t>(id)].producer;
  return n == kNoNode ? nullptr : &graph_.nodes[static_cast<size_t>(n)];
}

std::vector<const Node*> Matcher::readers(ValueId id) const {
  std::vector<const Node*> result;
  for (const NodeId n : uses_[static_cast<size_t>(id)])
    result.push_back(&graph_.nodes[static_cast<size_t>(n)]);
  return result;
}

const Node* Matcher::reader(ValueId id, OpCode op) const {
  for (const Node* node : readers(id)) {
    if (node->op == op) return node;
  }
  return nullptr;
}

bool Matcher::read_before(ValueId id, const Node& node) const {
  const auto all = readers(id);
  return std::any_of(all.begin(), all.end(), [&](const Node* reader) { return reader < &node; });
}

Graph rewrite_matches(const Graph& graph, const MatchFn& match) {
  const Matcher matcher(graph);
  std::map<const Node*, Match> by_last;
  std::set<const Node*> consumed;
  for (const Node& node : graph.nodes) {
    auto found = match(matcher, node);
    if (!found) continue;
    consumed.insert(found->consumed.begin(), found->consumed.end());
    by_last.emplace(found->last, std::move(*found));
  }
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const auto it = by_last.find(&node);
    if (it == by_last.end()) {
      if (consumed.count(&node) == 0) rewriter.copy(node);
      continue;
    }
    const Match& m = it->second;
    rewriter.builder().tag = m.tag.origin.empty() ? node.tag : m.tag;
    const auto results =
        rewriter.builder().emit_typed(m.op, m.attrs, rewriter.map(m.operands), m.dtypes);
    for (size_t i = 0; i < m.replaces.size(); ++i) {
      if (m.replaces[i] != kNoValue) rewriter.set(m.replaces[i], results.at(i));
    }
  }
  return remove_dead(rewriter.finish());
}

Graph fuse(const Graph& graph, FuseReport* report) {
  FuseReport ignored;
  FuseReport& notes = report == nullptr ? ignored : *report;
  Graph current = graph;
  const auto apply = [&](const FuseRule& rule) {
    current = rewrite_matches(current, [&](const Matcher& m, const Node& node) {
      return rule.match(m, node, notes.near_misses);
    });
  };
  for (const FuseRule& rule : fuse_rules()) apply(rule);
  current = fuse_amax(current);
  apply({"amax_quantize", match_amax_quantize});
  current.phase = Phase::lowered;
  return current;
}

}  // namespace octet
