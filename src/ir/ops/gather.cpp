// Look-ups by row. An index below 0 or not below the number of rows reads zeros and adds nothing.
#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Results infer_gather(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_int("gather", "index", in[1]);
  if (in[0].shape.empty()) fail("gather", "table must have an axis of rows, got []");
  Shape shape = in[1].shape;
  shape.insert(shape.end(), in[0].shape.begin() + 1, in[0].shape.end());
  return {moved(in[0], shape)};
}

Results infer_scatter_add(const Attrs& attrs, Types in) {
  const auto& a = std::get<ScatterAddAttrs>(attrs);
  need_float("scatter_add", "updates", in[0]);
  need_int("scatter_add", "index", in[1]);
  if (a.rows < 0) fail("scatter_add", "rows must be at least 0, got {}", a.rows);
  const Shape& u = in[0].shape;
  const Shape& index = in[1].shape;
  Shape expected = index;
  if (u.size() > index.size()) {
    expected.insert(expected.end(), u.begin() + static_cast<int64_t>(index.size()), u.end());
  }
  need_shape("scatter_add", "updates", in[0], expected);
  Shape shape{a.rows};
  shape.insert(shape.end(), u.begin() + static_cast<int64_t>(index.size()), u.end());
  return {real(shape)};
}

Values vjp_gather(Builder& b, const VjpCall& call) {
  if (call.dresults[0] == kNoValue) return {kNoValue, kNoValue};
  const int64_t rows = b.shape(call.node.operands[0])[0];
  return {b.emit1(OpCode::scatter_add, ScatterAddAttrs{.rows = rows},
                  {call.dresults[0], call.node.operands[1]}),
          kNoValue};
}

Values vjp_scatter_add(Builder& b, const VjpCall& call) {
  if (call.dresults[0] == kNoValue) return {kNoValue, kNoValue};
  return {b.binary(OpCode::gather, call.dresults[0], call.node.operands[1]), kNoValue};
}

Results infer_embedding(const Attrs& attrs, Types in) {
  std::get<NoAttrs>(attrs);
  need_float("embedding", "table", in[0]);
  need_rank("embedding", "table", in[0], 2);
  need_int("embedding", "ids", in[1]);
  need_rank("embedding", "ids", in[1], 1);
  return {real({in[1].shape[0], in[0].shape[1]})};
}

Results infer_embedding_grad(const Attrs& attrs, Types in) {
  const auto& a = std::get<ScatterAddAttrs>(attrs);
  need_float("embedding_grad", "dy", in[0]);
  need_rank("embedding_grad", "dy", in[0], 2);
  need_int("embedding_grad", "ids", in[1]);
  need_shape("embedding_grad", "ids", in[1], {in[0].shape[0]});
  if (a.rows < 0) fail("embedding_grad", "rows must be at least 0, got {}", a.rows);
  return {real({a.rows, in[0].shape[1]})};
}

Values vjp_embedding(Builder& b, const VjpCall& call) {
  if (call.dresults[0] == kNoValue) return {kNoValue, kNoValue};
  const int64_t rows = b.shape(call.node.operands[0])[0];
  return {b.emit1(OpCode::embedding_grad, ScatterAddAttrs{.rows = rows},
                  {call.dresults[0], call.node.operands[1]}),
          kNoValue};
}

Values decompose_embedding(Builder& b, const Node& node) {
  return {b.emit1(OpCode::gather, NoAttrs{}, node.operands)};
}

Values decompose_embedding_grad(Builder& b, const Node& node) {
  return {b.emit1(OpCode::scatter_add, node.attrs, node.operands)};
}

// Of the table only the rows that are looked up move.
Cost cost_lookup(const Graph& graph, const Node& node) {
  const auto index = static_cast<double>(graph.type(node.operands[1]).n_bytes());
  const auto result = static_cast<double>(graph.type(node.results[0]).n_bytes());
  return {.flops = 0, .bytes = index + 2 * result};
}

Cost cost_scatter(const Graph& graph, const Node& node) {
  return {.flops = static_cast<double>(graph.type(node.operands[0]).n_elems()),
          .bytes = moved_bytes(graph, node)};
}

}  // namespace

constinit const OpDef defs::gather =
    define(OpCode::gather,
           {.infer = infer_gather, .vjp = vjp_gather, .scale = scale::same, .cost = cost_lookup});
constinit const OpDef defs::scatter_add = define(OpCode::scatter_add, {.infer = infer_scatter_add,
                                                                       .vjp = vjp_scatter_add,
                                                                       .scale = scale::scatter_add,
                                                                       .cost = cost_scatter});
constinit const OpDef defs::embedding = define(OpCode::embedding, {.infer = infer_embedding,
                                                                   .vjp = vjp_embedding,
                                                                   .decompose = decompose_embedding,
                                                                   .scale = scale::same,
                                                                   .cost = cost_lookup});
constinit const OpDef defs::embedding_grad =
    define(OpCode::embedding_grad, {.infer = infer_embedding_grad,
                                    .decompose = decompose_embedding_grad,
                                    .scale = scale::scatter_add,
                                    .cost = cost_scatter});

}  // namespace octet::ops
