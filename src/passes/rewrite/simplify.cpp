#include "passes/rewrite/simplify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "ir/print.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

bool is_identity_perm(const Shape& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// True if this node of one operand gives that, where both have one type.
bool is_same_of_one_type(const Graph& graph, const Node& node) {
  if (const auto* spread = std::get_if<BroadcastAttrs>(&node.attrs))
    return is_identity_perm(spread->axes);
  if (const auto* turned = std::get_if<TransposeAttrs>(&node.attrs))
    return is_identity_perm(turned->perm);
  // Between types that are not assigned yet a cast may change them: passes/precision/f32_values.h.
  if (node.op == OpCode::cast) return graph.phase != Phase::logical;
  return node.op == OpCode::reshape || node.op == OpCode::stop_gradient;
}

// The operand that this node's single result equals, if there is one. (-0 + 0 is +0: no op here
// tells them apart.)
std::optional<ValueId> identity_of(const Graph& graph, const Node& node) {
  if (node.results.size() != 1 || node.operands.empty()) return std::nullopt;
  const ValueId x = node.in(Unary::x), y = node.out(Unary::y);
  if (x == kNoValue) return std::nullopt;
  const bool same_type = graph.type(x) == graph.type(y);
  const ValueId other = node.in(Binary::b);
  if (same_type && is_same_of_one_type(graph, node)) return x;
  const OpDef& def = op_def(node.op);
  if (!def.unit) return std::nullopt;
  if (filled_with(graph, other) == def.unit && same_type) return x;
  const bool is_other =
      def.commutes && filled_with(graph, x) == def.unit && graph.type(other) == graph.type(y);
  return is_other ? std::optional(other) : std::nullopt;
}

// Two moves in a row are one; returns the attributes and operand of that one.
std::optional<std::pair<Attrs, ValueId>> merged_move(const Graph& graph, const Node& node) {
  const Node* inner = node.operands.size() == 1 ? graph.producer(node.in(Unary::x)) : nullptr;
  if (inner == nullptr || inner->op != node.op) return std::nullopt;
  if (std::holds_alternative<ReshapeAttrs>(node.attrs))
    return std::pair(node.attrs, inner->in(Unary::x));
  const auto* outer = std::get_if<TransposeAttrs>(&node.attrs);
  if (outer == nullptr) return std::nullopt;
  const Shape& inner_perm = std::get<TransposeAttrs>(inner->attrs).perm;
  Shape perm;
  for (const int64_t axis : outer->perm) perm.push_back(inner_perm[static_cast<size_t>(axis)]);
  return std::pair(Attrs(TransposeAttrs{.perm = perm}), inner->in(Unary::x));
}

// The text that two nodes share exactly when they compute the same thing.
std::string key_of(const Graph& graph, const Node& node) {
  Node plain = node;
  plain.tag = {};
  std::string text = print(graph, plain);
  return text.substr(text.find('='));
}

}  // namespace

Graph remove_dead(Graph graph) {
  ById<bool> live(graph.values.size(), false);
  for (const GraphOutput& output : graph.outputs) live[output.value] = true;
  ById<bool> keep(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    for (const ValueId id : graph.nodes[n].results)
      keep[n] = keep[n] || (id != kNoValue && live[id]);
    if (!keep[n]) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) live[id] = true;
    }
  }
  if (std::find(keep.begin(), keep.end(), false) == keep.end()) return graph;
  return filter_nodes(graph, [&](NodeId n) { return keep[n]; });
}

Graph merge_common(const Graph& graph) {
  Rewriter rewriter(graph);
  std::unordered_map<std::string, ValueIds> seen;
  for (const Node& node : graph.nodes) {
    Node mapped = node;
    mapped.operands = rewriter.map(node.operands);
    // Types of the results stand in the key; operands are those of the new graph.
    std::string key = key_of(graph, mapped);
    const auto it = seen.find(key);
    if (it != seen.end()) {
      rewriter.set(node.results, it->second);
    } else {
      seen.emplace(std::move(key), rewriter.copy(node));
    }
  }
  return rewriter.finish();
}

Graph remove_identities(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    if (const auto same = identity_of(graph, node)) {
      rewriter.set(node.out(Unary::y), rewriter.map(*same));
    } else if (const auto move = merged_move(graph, node)) {
      rewriter.builder().tag = node.tag;
      rewriter.replace(node, node.op, move->first, {rewriter.map(move->second)});
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

// True if two graphs print alike, to the bits of their numbers: a NaN among attributes is no
// difference, as it is to ==, which would go on for ever.
bool is_same(const Graph& a, const Graph& b) {
  if (a == b) return true;
  if (a.nodes.size() != b.nodes.size() || a.values != b.values) return false;
  return print(a) == print(b);
}

Graph simplify(const Graph& graph) {
  Graph current = graph;
  for (;;) {
    Graph next = remove_dead(merge_common(merge_pads(remove_identities(current))));
    if (is_same(next, current)) return next;
    current = std::move(next);
  }
}

namespace {

// An op that became the same op on other operands still rounds its result once.
void retype_same_op(Graph& graph, ValueId result, OpCode op, Dtype dtype) {
  Value& value = graph.value(result);
  const bool is_same = value.producer != kNoNode && graph.node(value.producer).op == op;
  if (is_same && is_float(value.type.dtype) && !is_quantized(dtype)) value.type.dtype = dtype;
}

}  // namespace

Graph decompose(const Graph& graph, const std::function<bool(const Graph&, const Node&)>& wanted) {
  Graph current = graph;
  for (bool changed = true; changed;) {
    changed = false;
    Rewriter rewriter(current);
    for (const Node& node : current.nodes) {
      const OpDef& def = op_def(node.op);
      if (def.decompose == nullptr || !wanted(current, node)) {
        rewriter.copy(node);
        continue;
      }
      Node mapped = node;
      mapped.operands = rewriter.map(node.operands);
      rewriter.builder().tag = node.tag;
      auto results = def.decompose(rewriter.builder(), mapped, result_types(current, node));
      CHECK(results.size() == node.results.size());
      for (size_t i = 0; i < results.size(); ++i) {
        if (node.results[i] == kNoValue) continue;
        if (rewriter.builder().type(results[i]).shape != current.type(node.results[i]).shape) {
          throw Error(ErrorCode::internal, "[decompose] {} gives {} where the op gives {}",
                      def.name, to_string(rewriter.builder().type(results[i])),
                      to_string(current.type(node.results[i])));
        }
        const Dtype dtype = current.type(node.results[i]).dtype;
        retype_same_op(rewriter.builder().graph(), results[i], node.op, dtype);
        if (rewriter.builder().type(results[i]).dtype != dtype) {
          results[i] = rewriter.builder().cast(results[i], dtype);
        }
      }
      rewriter.set(node.results, results);
      changed = true;
    }
    current = rewriter.finish();
  }
  return current;
}

Graph decompose_all(const Graph& graph) {
  return decompose(graph, [](const Graph&, const Node&) { return true; });
}

}  // namespace octet
