// Products of matrices and tensors, and biases.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

Shape joined(Shape axes, const Shape& more) {
  axes.insert(axes.end(), more.begin(), more.end());
  return axes;
}

// The axes of an operand that are neither batch nor contracted, in order.
Shape free_axes(size_t rank, const Shape& batch, const Shape& contract) {
  return without(iota_axes(rank), joined(batch, contract));
}

void need_equal_dims(std::string_view what, Types in, const Shape& axes_a, const Shape& axes_b) {
  if (axes_a.size() != axes_b.size()) {
    fail("dot", "a and b must have as many {} axes, got {} and {}", what, to_string(axes_a),
         to_string(axes_b));
  }
  for (size_t i = 0; i < axes_a.size(); ++i) {
    const int64_t a = in[0].shape[at(axes_a[i])];
    const int64_t b = in[1].shape[at(axes_b[i])];
    if (a != b) fail("dot", "{} axes must be equal, got {} and {}", what, a, b);
  }
}

Results infer_dot(const Attrs& attrs, Types in) {
  const auto& a = std::get<DotAttrs>(attrs);
  need_float("dot", "a", in[0]);
  need_float("dot", "b", in[1]);
  need_axes("dot", "axes of a", joined(a.batch_a, a.contract_a), in[0].shape.size());
  need_axes("dot", "axes of b", joined(a.batch_b, a.contract_b), in[1].shape.size());
  need_equal_dims("batch", in, a.batch_a, a.batch_b);
  need_equal_dims("contracted", in, a.contract_a, a.contract_b);
  const Shape free_a = free_axes(in[0].shape.size(), a.batch_a, a.contract_a);
  const Shape free_b = free_axes(in[1].shape.size(), a.batch_b, a.contract_b);
  const Shape shape =
      joined(at_axes(in[0].shape, joined(a.batch_a, free_a)), at_axes(in[1].shape, free_b));
  return {real(shape)};
}

// One operand of a dot: which of its axes are what.
struct Side {
  Shape batch, contract, free;
  bool is_first = true;
};

// The gradient of `self`: dy times `other` over other's free axes, whose axes are then batch, free,
// contract of self.
ValueId dot_gradient(Builder& b, ValueId dy, ValueId other, const Side& self, const Side& peer) {
  const bool self_is_first = self.is_first;
  const auto n_batch = static_cast<int64_t>(self.batch.size());
  const auto n_first = static_cast<int64_t>(self_is_first ? self.free.size() : peer.free.size());
  DotAttrs attrs;
  attrs.batch_a = iota_axes(self.batch.size());
  attrs.batch_b = peer.batch;
  const int64_t peer_start = self_is_first ? n_batch + n_first : n_batch;
  for (size_t i = 0; i < peer.free.size(); ++i) {
    attrs.contract_a.push_back(peer_start + static_cast<int64_t>(i));
  }
  attrs.contract_b = peer.free;
  const ValueId raw = b.emit1(OpCode::dot, attrs, {dy, other});
  // raw: batch, self's free, then what is left of the peer: its contracted axes in the peer's
  // order.
  Shape place = joined(self.batch, self.free);
  std::vector<std::pair<int64_t, int64_t>> left;  // peer's axis, self's axis
  for (size_t i = 0; i < peer.contract.size(); ++i) {
    left.emplace_back(peer.contract[i], self.contract[i]);
  }
  std::sort(left.begin(), left.end());
  for (const auto& [peer_axis, self_axis] : left) place.push_back(self_axis);
  return place == iota_axes(place.size()) ? raw : b.transpose(raw, inverse(place));
}

Values vjp_dot(Builder& b, const VjpCall& call) {
  const ValueId dy = call.dresults[0];
  const auto& attrs = std::get<DotAttrs>(call.node.attrs);
  const ValueId x = call.node.operands[0];
  const ValueId y = call.node.operands[1];
  const Side a{attrs.batch_a, attrs.contract_a,
               free_axes(b.shape(x).size(), attrs.batch_a, attrs.contract_a), true};
  const Side c{attrs.batch_b, attrs.contract_b,
               free_axes(b.shape(y).size(), attrs.batch_b, attrs.contract_b), false};
  return {dot_gradient(b, dy, y, a, c), dot_gradient(b, dy, x, c, a)};
}

Cost cost_dot(const Graph& graph, const Node& node) {
  double depth = 1;
  for (const int64_t axis : std::get<DotAttrs>(node.attrs).contract_a) {
    depth *= static_cast<double>(graph.type(node.operands[0]).shape[at(axis)]);
  }
  return cost_per_result(graph, node, 2 * depth);
}

Results infer_gemm(const Attrs& attrs, Types in) {
  const auto& a = std::get<GemmAttrs>(attrs);
  need_matrix("gemm", "a", in[0]);
  need_matrix("gemm", "b", in[1]);
  const int64_t m = in[0].shape[a.trans_a ? 1 : 0];
  const int64_t k = in[0].shape[a.trans_a ? 0 : 1];
  const int64_t n = in[1].shape[a.trans_b ? 0 : 1];
  need_shape("gemm", "b", in[1], a.trans_b ? Shape{n, k} : Shape{k, n});
  const Shape x = read_shape(in[0], a.trans_a), w = read_shape(in[1], !a.trans_b);
  if (x[0] != m || w[0] != n || x[1] != w[1]) {
    fail("gemm", "a and b must be padded alike along what is reduced, got {} and {}",
         to_string(in[0]), to_string(in[1]));
  }
  if (!absent(in, Gemm::c)) {
    need_float("gemm", "c", in[Gemm::c], is_bias_row(in[Gemm::c]) ? Shape{n} : Shape{m, n});
  }
  for (const ScalePlace place : defs::gemm.scales) {
    if (!in[place.operand].is_scaled() && !absent(in, place.scale))
      need_float("gemm", "a factor of what is not quantized", in[place.scale], {});
  }
  if (absent(in, Gemm::scale_y)) return {real({m, n})};
  need_float("gemm", "scale_y", in[Gemm::scale_y], {});
  return {per_tensor(Dtype::e4m3, {m, n})};
}

// With x = op(a) and z = op(b): dx = dy z^T and dz = x^T dy, each transposed where its operand
// stands transposed.
Values vjp_gemm(Builder& b, const VjpCall& call) {
  const Node& n = call.node;
  Values grads(n.operands.size(), kNoValue);
  ValueId dy = call.dresults[0];
  if (!absent(n, Gemm::c)) {
    const bool is_row = is_bias_row(b.type(n.operands[Gemm::c]));
    grads[Gemm::c] = is_row ? b.unary(OpCode::column_sum, dy) : dy;
  }
  for (const SlotId scale : {Gemm::scale_a, Gemm::scale_b}) {
    if (!absent(n, scale)) dy = b.rescale(dy, n.operands[scale]);
  }
  const auto& t = std::get<GemmAttrs>(n.attrs);
  const auto product = [&](ValueId left, bool trans_left, ValueId right, bool trans_right,
                           GemmRole role) {
    return b.gemm(left, right, {.trans_a = trans_left, .trans_b = trans_right, .role = role});
  };
  const ValueId x = n.operands[0];
  const ValueId w = n.operands[1];
  grads[0] = t.trans_a ? product(w, t.trans_b, dy, true, GemmRole::dgrad)
                       : product(dy, false, w, !t.trans_b, GemmRole::dgrad);
  grads[1] = t.trans_b ? product(dy, true, x, t.trans_a, GemmRole::wgrad)
                       : product(x, !t.trans_a, dy, false, GemmRole::wgrad);
  return grads;
}

// One scale for all elements goes into the product.
bool has_block_scales(const TensorType& factor) {
  return factor.is_scaled() && !factor.has(Granularity::Kind::tensor);
}

// Factors with scales by block are dequantized first: to f32 by f32 scales, else to BF16, which is
// exact where the scales are powers of two.
Values widened_blocks(Builder& b, const Node& node) {
  Values operands = node.operands;
  operands.resize(defs::gemm.operands.size(), kNoValue);
  for (const ScalePlace place : defs::gemm.scales) {
    ValueId &x = operands[place.operand], &scale = operands[place.scale];
    if (!has_block_scales(b.type(x))) continue;
    const Dtype wide = b.type(scale).dtype == Dtype::f32 ? Dtype::f32 : Dtype::bf16;
    if (b.type(x).layout.transposed) x = b.laid_out(x, false);
    x = b.dequantize(x, scale, wide);
    scale = kNoValue;
  }
  return b.emit_typed(OpCode::gemm, node.attrs, operands, {Dtype::f32});
}

// The product in f32, and its codes.
Values stored_codes(Builder& b, const Node& node) {
  Values operands = node.operands;
  operands.resize(Gemm::scale_y);
  const ValueId y = b.emit_typed(OpCode::gemm, node.attrs, operands, {Dtype::f32})[0];
  return b.emit_typed(OpCode::quantize, QuantizeAttrs{}, {y, node.in(Gemm::scale_y)},
                      {Dtype::e4m3});
}

Values decompose_gemm(Builder& b, const Node& node) {
  const auto& a = std::get<GemmAttrs>(node.attrs);
  if (!absent(node, Gemm::scale_y)) return stored_codes(b, node);
  if (has_block_scales(b.type(node.in(Gemm::a))) || has_block_scales(b.type(node.in(Gemm::b))))
    return widened_blocks(b, node);
  const DotAttrs attrs{.batch_a = {},
                       .batch_b = {},
                       .contract_a = {a.trans_a ? 0 : 1},
                       .contract_b = {a.trans_b ? 1 : 0}};
  const auto factor = [&](size_t i) {
    const ValueId scale = node.in(i + 3);
    ValueId x = node.operands[i];
    if (b.type(x).layout.transposed) x = b.laid_out(x, false);
    if (scale == kNoValue) return x;
    if (!b.type(x).is_scaled()) return b.rescale(x, scale);
    return b.dequantize(x, scale, Dtype::f32);
  };
  const ValueId y = b.emit1(OpCode::dot, attrs, {factor(0), factor(1)});
  if (absent(node, Gemm::c)) return {y};
  const ValueId c = node.operands[Gemm::c];
  if (is_bias_row(b.type(c))) return {b.binary(OpCode::bias_add, y, c)};
  return {b.add(y, c)};
}

Cost cost_gemm(const Graph& graph, const Node& node) {
  const auto& a = std::get<GemmAttrs>(node.attrs);
  const auto depth = static_cast<double>(read_shape(graph.type(node.operands[0]), a.trans_a)[1]);
  return cost_per_result(graph, node, 2 * depth + (absent(node, 2) ? 0 : 1));
}

Results infer_batched_gemm(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "batched_gemm";
  using S = BatchedGemm;
  const auto& a = std::get<BatchedGemmAttrs>(attrs);
  for (const SlotId i : {S::a, S::b}) {
    need_float(kName, i == S::a ? "a" : "b", in[i]);
    need_rank(kName, i == S::a ? "a" : "b", in[i], 3);
  }
  const Shape &x = in[S::a].shape, &z = in[S::b].shape;
  const int64_t m = x[a.trans_a ? 2 : 1], k = x[a.trans_a ? 1 : 2], n = z[a.trans_b ? 1 : 2];
  need_shape(kName, "b", in[S::b], a.trans_b ? Shape{x[0], n, k} : Shape{x[0], k, n});
  if (!absent(in, S::c)) need_float(kName, "c", in[S::c], {x[0], m, n});
  return {real({x[0], m, n})};
}

// Gradients as gemm's, of each GEMM of the batch.
Values vjp_batched_gemm(Builder& b, const VjpCall& call) {
  using S = BatchedGemm;
  const auto& t = std::get<BatchedGemmAttrs>(call.node.attrs);
  const ValueId dy = call.dresults[0], x = call.node.in(S::a), w = call.node.in(S::b);
  const auto product = [&](ValueId left, bool trans_left, ValueId right, bool trans_right) {
    const BatchedGemmAttrs attrs{.trans_a = trans_left, .trans_b = trans_right, .factor = t.factor};
    return b.emit1(OpCode::batched_gemm, attrs, {left, right});
  };
  Values grads = {t.trans_a ? product(w, t.trans_b, dy, true) : product(dy, false, w, !t.trans_b),
                  t.trans_b ? product(dy, true, x, t.trans_a) : product(x, !t.trans_a, dy, false)};
  if (call.node.operands.size() > S::c) grads.push_back(dy);
  return grads;
}

Values decompose_batched_gemm(Builder& b, const Node& node) {
  using S = BatchedGemm;
  const auto& a = std::get<BatchedGemmAttrs>(node.attrs);
  const DotAttrs attrs{.batch_a = {0},
                       .batch_b = {0},
                       .contract_a = {a.trans_a ? 1 : 2},
                       .contract_b = {a.trans_b ? 2 : 1}};
  const ValueId dot =
      b.emit_typed(OpCode::dot, attrs, {node.in(S::a), node.in(S::b)}, {Dtype::f32})[0];
  const ValueId y = a.factor == 1 ? dot : b.scaled(dot, a.factor);
  return {absent(node, S::c) ? y : b.add(y, node.in(S::c))};
}

Cost cost_batched_gemm(const Graph& graph, const Node& node) {
  const Shape& a = graph.type(node.in(BatchedGemm::a)).shape;
  const bool is_transposed = std::get<BatchedGemmAttrs>(node.attrs).trans_a;
  const auto depth = static_cast<double>(a[is_transposed ? 1 : 2]);
  return cost_per_result(graph, node, 2 * depth + (absent(node, BatchedGemm::c) ? 0 : 1));
}

Results infer_bias_add(const Attrs&, Types in) {
  need_matrix("bias_add", "x", in[0]);
  need_float("bias_add", "bias", in[1], {in[0].shape[1]});
  return {real(in[0].shape)};
}

Values vjp_bias_add(Builder& b, const VjpCall& call) {
  const ValueId dy = call.dresults[0];
  return {dy, b.unary(OpCode::column_sum, dy)};
}

Values decompose_bias_add(Builder& b, const Node& node) {
  const Shape shape = b.shape(node.operands[0]);
  return {b.add(node.operands[0], b.broadcast(node.operands[1], shape, {1}))};
}

Results infer_column_sum(const Attrs&, Types in) {
  need_matrix("column_sum", "x", in[0]);
  return {real({in[0].shape[1]})};
}

Values vjp_column_sum(Builder& b, const VjpCall& call) {
  const Shape shape = b.shape(call.node.operands[0]);
  return {b.broadcast(call.dresults[0], shape, {1})};
}

Values decompose_column_sum(Builder& b, const Node& node) {
  return {b.reduce_sum(node.operands[0], {0})};
}

Cost cost_column_sum(const Graph& graph, const Node& node) {
  return cost_per_result(graph, node, static_cast<double>(graph.type(node.operands[0]).shape[0]));
}

constexpr ScalePlace kScalesOfFactors[] = {{Gemm::a, Gemm::scale_a}, {Gemm::b, Gemm::scale_b}};
constexpr InplacePair kInplaceC[] = {{.result = 0, .operand = 2}};  // of batched_gemm too
static_assert(Gemm::c == 2 && BatchedGemm::c == 2);

}  // namespace

constinit const OpDef defs::dot = define(OpCode::dot, {.infer = infer_dot,
                                                       .vjp = vjp_dot,
                                                       .scale = scale::dot,
                                                       .cost = cost_dot,
                                                       .error = error::dot});
constinit const OpDef defs::gemm = define(OpCode::gemm, {.infer = infer_gemm,
                                                         .vjp = vjp_gemm,
                                                         .decompose = decompose_gemm,
                                                         .scale = scale::gemm,
                                                         .cost = cost_gemm,
                                                         .inplace = kInplaceC,
                                                         .scales = kScalesOfFactors});
constinit const OpDef defs::batched_gemm =
    define(OpCode::batched_gemm, {.infer = infer_batched_gemm,
                                  .vjp = vjp_batched_gemm,
                                  .decompose = decompose_batched_gemm,
                                  .scale = scale::batched_gemm,
                                  .cost = cost_batched_gemm,
                                  .inplace = kInplaceC});
constinit const OpDef defs::bias_add = define(OpCode::bias_add, {.infer = infer_bias_add,
                                                                 .vjp = vjp_bias_add,
                                                                 .decompose = decompose_bias_add,
                                                                 .scale = scale::bias_add,
                                                                 .cost = cost_per_result<1>,
                                                                 .inplace = kInplaceFirst});
constinit const OpDef defs::column_sum =
    define(OpCode::column_sum, {.infer = infer_column_sum,
                                .vjp = vjp_column_sum,
                                .decompose = decompose_column_sum,
                                .scale = scale::column_sum,
                                .cost = cost_column_sum});

}  // namespace octet::ops
