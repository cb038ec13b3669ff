// Views: results that are bytes of their operand: all under another shape, or a rank's shard where
// shards are no longer than what is cut. They do not run.
#pragma once

#include <variant>

#include "ir/op_def.h"

namespace octet {

inline bool is_view(const Graph& graph, const Node& node) {
  if (!op_def(node.op).is_view) return false;
  const auto* cut = std::get_if<ShardAttrs>(&node.attrs);
  const int64_t n_elems = graph.type(node.out(Unary::y)).n_elems();
  return cut == nullptr || n_elems * cut->ranks == graph.type(node.in(Unary::x)).n_elems();
}

// An all_gather whose operand lies where it lies in the result.
inline bool gathers_in_place(const Node& node) {
  return op_def(node.op).gathers && std::get<CollectiveAttrs>(node.attrs).in_place;
}

// The node gathers the others' shards of an input around this rank's own, which lies there.
inline bool completes_input(const Graph& graph, const Node& node) {
  if (!gathers_in_place(node)) return false;
  const Node* shard = graph.producer(node.in(Unary::x), OpCode::take_shard);
  return shard != nullptr && is_view(graph, *shard) &&
         graph.input_of(shard->in(Unary::x)) != nullptr;
}

// The value in whose bytes this one lies.
inline ValueId view_root(const Graph& graph, ValueId id) {
  for (;;) {
    const Node* producer = graph.producer(id);
    if (producer == nullptr) return id;
    if (!is_view(graph, *producer) && !completes_input(graph, *producer)) return id;
    id = producer->in(Unary::x);
  }
}

// How many bytes of its root lie before it.
inline int64_t view_offset(const Graph& graph, ValueId id) {
  int64_t offset = 0;
  for (;;) {
    const Node* producer = graph.producer(id);
    if (producer == nullptr) return offset;
    if (completes_input(graph, *producer)) {
      id = graph.producer(producer->in(Unary::x))->in(Unary::x);
      continue;
    }
    if (!is_view(graph, *producer)) return offset;
    if (const auto* cut = std::get_if<ShardAttrs>(&producer->attrs))
      offset += cut->rank * graph.type(id).n_bytes();
    id = producer->in(Unary::x);
  }
}

}  // namespace octet
