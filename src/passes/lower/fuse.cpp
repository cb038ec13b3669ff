#include "passes/lower/fuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ir/print.h"
#include "passes/lower/fuse_amax.h"
#include "passes/lower/fuse_rules.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"

namespace octet {

Matcher::Matcher(const Graph& graph, const FuseOptions& options, FuseReport* report)
    : graph_(graph), options_(options), report_(report), uses_(uses(graph)) {
  for (const GraphOutput& output : graph.outputs) graph_outputs_.insert(output.value);
}

void Matcher::near_miss(std::string_view rule, const Node& node, std::string_view why) const {
  if (report_ != nullptr)
    report_->near_misses.push_back(fmt::format("{}: {}: {}", rule, print(graph_, node), why));
}

std::vector<const Node*> Matcher::readers(ValueId id) const {
  std::vector<const Node*> result;
  for (const NodeId n : uses_[static_cast<size_t>(id)]) result.push_back(&graph_.node(n));
  return result;
}

const Node* Matcher::reader(ValueId id, OpCode op) const {
  for (const Node* node : readers(id)) {
    if (node->op == op) return node;
  }
  return nullptr;
}

bool Matcher::read_before(ValueId id, const Node& node) const {
  const auto& readers = uses_[static_cast<size_t>(id)];
  return std::any_of(readers.begin(), readers.end(),
                     [&](NodeId reader) { return reader < graph_.id(node); });
}

namespace {

// The matches that one rule may make, so that no node and no value is lost: each node belongs to
// one match at most, what a match takes away nobody else reads, and nothing is read before it is
// made.
class MatchSet {
 public:
  explicit MatchSet(const Matcher& m)
      : m_(m), by_last_(m.graph().nodes.size()), taken_(m.graph().nodes.size(), false) {}

  // Takes the match, or says why it cannot be.
  std::optional<std::string> claim(Match match) {
    std::vector<NodeId> nodes = match.consumed;
    nodes.push_back(match.last);
    for (const NodeId n : nodes) {
      if (taken_[at(n)]) return fmt::format("{} belongs to another match", name(n));
    }
    if (auto why = illegal(match, nodes)) return why;
    for (const NodeId n : nodes) {
      taken_[at(n)] = true;
      for (const ValueId id : node(n).results) {
        if (id != kNoValue) made_at_[id] = replaces(match, id) ? match.last : kGone;
      }
    }
    for (const ValueId id : match.operands) {
      if (id == kNoValue) continue;
      NodeId& first = read_at_.try_emplace(id, match.last).first->second;
      first = std::min(first, match.last);
    }
    by_last_[at(match.last)] = std::move(match);
    return std::nullopt;
  }

  const std::optional<Match>& match_at(NodeId last) const { return by_last_[at(last)]; }
  bool is_taken(NodeId n) const { return taken_[at(n)]; }

 private:
  static constexpr NodeId kGone = std::numeric_limits<NodeId>::max();
  static size_t at(NodeId n) { return static_cast<size_t>(n); }
  const Node& node(NodeId n) const { return m_.graph().node(n); }
  std::string_view name(NodeId n) const { return op_def(node(n).op).name; }
  static bool replaces(const Match& match, ValueId id) {
    return std::find(match.replaces.begin(), match.replaces.end(), id) != match.replaces.end();
  }

  std::optional<std::string> illegal(const Match& match, const std::vector<NodeId>& nodes) const {
    for (const ValueId id : match.operands) {
      if (id == kNoValue) continue;
      const auto made = made_at_.find(id);
      const NodeId producer = m_.graph().value(id).producer;
      if (std::max(producer, made == made_at_.end() ? kNoNode : made->second) >= match.last)
        return fmt::format("%{} is made too late", id);
    }
    for (const NodeId n : nodes) {
      for (const ValueId id : node(n).results) {
        if (id == kNoValue) continue;
        if (auto why = illegal_result(match, nodes, id)) return why;
      }
    }
    return std::nullopt;
  }

  // A replaced result may be read behind the match, another by the match's own nodes alone.
  std::optional<std::string> illegal_result(const Match& match, const std::vector<NodeId>& nodes,
                                            ValueId id) const {
    const bool is_replaced = replaces(match, id);
    for (const Node* reader : m_.readers(id)) {
      const NodeId n = m_.graph().id(*reader);
      const bool is_own = std::find(nodes.begin(), nodes.end(), n) != nodes.end();
      if (is_own || (is_replaced && n > match.last)) continue;
      return fmt::format("%{} is read by {} {}", id, name(n), is_replaced ? "before" : "too");
    }
    if (!is_replaced && m_.is_graph_output(id)) return fmt::format("%{} is handed out", id);
    const auto read = read_at_.find(id);
    if (read != read_at_.end() && (!is_replaced || read->second <= match.last))
      return fmt::format("%{} is read by another match", id);
    return std::nullopt;
  }

  const Matcher& m_;
  std::vector<std::optional<Match>> by_last_;
  std::vector<bool> taken_;
  std::map<ValueId, NodeId> made_at_;  // results of claimed nodes: where the match makes them
  std::map<ValueId, NodeId> read_at_;  // operands of claimed matches: the first that reads them
};

}  // namespace

Graph rewrite_matches(Graph graph, const FuseRule& rule, const FuseOptions& options,
                      FuseReport* report) {
  const Matcher matcher(graph, options, report);
  MatchSet matches(matcher);
  bool any = false;
  for (const Node& node : graph.nodes) {
    if (node.op != rule.op.value_or(node.op)) continue;
    auto found = rule.match(matcher, node);
    if (!found) continue;
    if (const auto why = matches.claim(std::move(*found)); !why) {
      any = true;
    } else {
      matcher.near_miss(rule.name, node, *why);
    }
  }
  if (!any) return graph;
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    const auto& match = matches.match_at(matcher.graph().id(node));
    if (!match) {
      if (!matches.is_taken(matcher.graph().id(node))) rewriter.copy(node);
      continue;
    }
    rewriter.builder().tag = match->tag.origin.empty() ? node.tag : match->tag;
    ResultTypes types = result_types(graph, match->replaces);
    types.resize(op_def(match->op).results.size(), Dtype::f32);
    const auto results = rewriter.builder().emit_typed(match->op, match->attrs,
                                                       rewriter.map(match->operands), types);
    for (size_t i = 0; i < match->replaces.size(); ++i) {
      if (match->replaces[i] != kNoValue) rewriter.set(match->replaces[i], results.at(i));
    }
  }
  return remove_dead(rewriter.finish());
}

Graph fuse(const Graph& graph, FuseReport* report, FuseOptions options) {
  Graph current = graph;
  const auto apply = [&](const FuseRule& rule) {
    current = rewrite_matches(std::move(current), rule, options, report);
  };
  for (const FuseRule& rule : fuse_rules()) apply(rule);
  current = fuse_amax(current);
  apply({"amax_quantize", {}, match_amax_quantize});
  current.phase = Phase::lowered;
  return current;
}

}  // namespace octet
