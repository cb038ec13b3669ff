// Look-ups by row. An index below 0 or not below the number of rows reads zeros and adds nothing.
#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Results infer_gather(const Attrs&, Types in) {
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

template <OpCode Gradient>
Values vjp_lookup(Builder& b, const VjpCall& call) {
  const int64_t rows = b.shape(call.node.operands[0])[0];
  return {
      b.emit1(Gradient, ScatterAddAttrs{.rows = rows}, {call.dresults[0], call.node.operands[1]}),
      kNoValue};
}

Values vjp_scatter_add(Builder& b, const VjpCall& call) {
  return {b.binary(OpCode::gather, call.dresults[0], call.node.operands[1]), kNoValue};
}

Results infer_embedding(const Attrs&, Types in) {
  need_matrix("embedding", "table", in[0]);
  need_int("embedding", "ids", in[1]);
  need_rank("embedding", "ids", in[1], 1);
  return {real({in[1].shape[0], in[0].shape[1]})};
}

Results infer_embedding_grad(const Attrs& attrs, Types in) {
  const auto& a = std::get<ScatterAddAttrs>(attrs);
  need_matrix("embedding_grad", "dy", in[0]);
  need_int("embedding_grad", "ids", in[1], {in[0].shape[0]});
  if (a.rows < 0) fail("embedding_grad", "rows must be at least 0, got {}", a.rows);
  return {real({a.rows, in[0].shape[1]})};
}

Values decompose_embedding(Builder& b, const Node& node) {
  return {b.emit1(OpCode::gather, NoAttrs{}, node.operands)};
}

Values decompose_embedding_grad(Builder& b, const Node& node) {
  return {b.emit1(OpCode::scatter_add, node.attrs, node.operands)};
}

// Only the rows of the table that are looked up move.
Cost cost_lookup(const Graph& graph, const Node& node) {
  const auto index = static_cast<double>(graph.type(node.operands[1]).n_bytes());
  const auto result = static_cast<double>(graph.type(node.results[0]).n_bytes());
  return {.flops = 0, .bytes = index + 2 * result};
}

}  // namespace

constinit const OpDef defs::gather = define(OpCode::gather, {.infer = infer_gather,
                                                             .vjp = vjp_lookup<OpCode::scatter_add>,
                                                             .scale = scale::same,
                                                             .cost = cost_lookup,
                                                             .error = error::moved});
constinit const OpDef defs::scatter_add = define(OpCode::scatter_add, {.infer = infer_scatter_add,
                                                                       .vjp = vjp_scatter_add,
                                                                       .scale = scale::scatter_add,
                                                                       .cost = cost_per_operand<1>,
                                                                       .error = error::sum});
constinit const OpDef defs::embedding =
    define(OpCode::embedding, {.infer = infer_embedding,
                               .vjp = vjp_lookup<OpCode::embedding_grad>,
                               .decompose = decompose_embedding,
                               .scale = scale::same,
                               .cost = cost_lookup});
constinit const OpDef defs::embedding_grad =
    define(OpCode::embedding_grad, {.infer = infer_embedding_grad,
                                    .decompose = decompose_embedding_grad,
                                    .scale = scale::scatter_add,
                                    .cost = cost_per_operand<1>});

}  // namespace octet::ops
