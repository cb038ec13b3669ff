// Views: results that are bytes of their operand: all under another shape, all of a whole whose
// shard lies in its place, or a rank's shard where shards are no longer than what is cut. They do
// not run.
#pragma once

#include <variant>

#include "ir/graph.h"
#include "ir/ops/slots.h"

namespace octet {

inline bool is_view(const Graph& graph, const Node& node) {
  if (node.op == OpCode::put_shard) return std::get<ShardAttrs>(node.attrs).in_place;
  if (node.op != OpCode::take_shard) return node.op == OpCode::reshape;
  const int64_t shard = graph.type(node.out(Unary::y)).n_elems();
  return shard * std::get<ShardAttrs>(node.attrs).ranks == graph.type(node.in(Unary::x)).n_elems();
}

// The value whose bytes this one is.
inline ValueId view_root(const Graph& graph, ValueId id) {
  for (;;) {
    const Node* producer = graph.producer(id);
    if (producer == nullptr || !is_view(graph, *producer)) return id;
    id = producer->in(Unary::x);
  }
}

// How many bytes of its root lie before it.
inline int64_t view_offset(const Graph& graph, ValueId id) {
  int64_t offset = 0;
  for (;;) {
    const Node* producer = graph.producer(id);
    if (producer == nullptr || !is_view(graph, *producer)) return offset;
    if (producer->op == OpCode::take_shard)
      offset += std::get<ShardAttrs>(producer->attrs).rank * graph.type(id).n_bytes();
    id = producer->in(Unary::x);
  }
}

}  // namespace octet
