// The gated delta rule, a linear attention whose state forgets: of each head of values
//   S_t = e^g_t S_{t-1} + k_t b_t (v_t - e^g_t S_{t-1}^T k_t)^T    [dk, dv]
//   o_t = S_t^T q_t / sqrt(dk)
// with q and k of length 1 (x / sqrt(x^2 + 1e-6)), g = log_decay, at most 0, and b = beta. Head h
// reads key head h / (H/K). S = 0 before a row's first token and, with doc_starts (where in its row
// a token's document begins), before each document's; or it is the operand `state`, and the one
// behind the last token is a result: then no gradient flows. Source: Yang, Kautz, Hatamizadeh 2024.
// The decomposition computes in f32, in chunks of 32 tokens or less: within a chunk as matrices,
// whose triangular systems are solved by blocks of 1, 2, 4, ..., and S from chunk to chunk, by a
// matrix of each. That of the gradient takes the forward pass's steps again and their gradients.
#include "ir/ops/gated_delta_steps.h"

#include <algorithm>

#include "ir/ops/gradients_of_steps.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

// A float in f32, where types are given.
ValueId f32_if_typed(Builder& b, ValueId x) {
  if (b.graph().phase == Phase::logical || b.type(x).dtype == Dtype::f32) return x;
  return b.cast(x, Dtype::f32);
}

// The operands from slot `first` on, in the order of GatedDelta's.
DeltaOperands operands_of(Builder& b, const Node& node, SlotId first) {
  const auto in = [&](SlotId slot) { return node.in(first + slot); };
  return {.q = f32_if_typed(b, in(GatedDelta::q)),
          .k = f32_if_typed(b, in(GatedDelta::k)),
          .v = f32_if_typed(b, in(GatedDelta::v)),
          .log_decay = f32_if_typed(b, in(GatedDelta::log_decay)),
          .beta = f32_if_typed(b, in(GatedDelta::beta)),
          .doc_starts = in(GatedDelta::doc_starts)};
}

Values decompose_gated_delta(Builder& b, const Node& node) {
  DeltaOperands x = operands_of(b, node, GatedDelta::q);
  if (!absent(node, GatedDelta::state)) x.state = f32_if_typed(b, node.in(GatedDelta::state));
  return emit_delta_steps(b, std::get<GatedDeltaAttrs>(node.attrs), x);
}

Values decompose_gated_delta_grad(Builder& b, const Node& node) {
  const ValueId dout = f32_if_typed(b, node.in(GatedDeltaGrad::dout));
  DeltaOperands x = operands_of(b, node, GatedDeltaGrad::q);
  // An operand in two places has a gradient of each.
  ValueIds seen;
  for (ValueId* const id : {&x.q, &x.k, &x.v, &x.log_decay, &x.beta}) {
    if (std::ranges::find(seen, *id) != seen.end()) *id = b.reshape(*id, b.shape(*id));
    seen.push_back(*id);
  }
  const size_t first = b.graph().nodes.size();
  const ValueId o = emit_delta_steps(b, std::get<GatedDeltaAttrs>(node.attrs), x)[0];
  return gradients_of_steps(b, first, {{o, dout}}, {x.q, x.k, x.v, x.log_decay, x.beta});
}

// Types of q, k, v, log_decay, beta and doc_starts, from slot `first` on.
void check_operands_of(std::string_view op, const GatedDeltaAttrs& a, Types in, SlotId first) {
  const auto type = [&](SlotId slot) -> const TensorType& { return in[first + slot]; };
  const TensorType &q = type(GatedDelta::q), &decay = type(GatedDelta::log_decay);
  need_matrix(op, "q", q);
  need_matrix(op, "log_decay", decay);
  const int64_t rows = q.shape[0], width = q.shape[1], heads = decay.shape[1];
  if (a.batch < 1 || a.key_heads < 1 || rows < 1 || rows % a.batch != 0)
    fail(op, "expected a batch and key_heads of 1 or more, and rows of each text, got {}, {}, {}",
         a.batch, a.key_heads, rows);
  if (width < 1 || width % a.key_heads != 0 || heads < 1 || heads % a.key_heads != 0)
    fail(op,
         "expected columns of q and heads of log_decay in multiples of {} key_heads, got {}, {}",
         a.key_heads, width, heads);
  need_float(op, "q", q);
  need_float(op, "k", type(GatedDelta::k), q.shape);
  const TensorType& v = type(GatedDelta::v);
  need_matrix(op, "v", v);
  if (v.shape[0] != rows || v.shape[1] < 1 || v.shape[1] % heads != 0)
    fail(op, "v must be [{}, a multiple of {}], got {}", rows, heads, to_string(v.shape));
  need_float(op, "v", v);
  need_float(op, "log_decay", decay, {rows, heads});
  need_float(op, "beta", type(GatedDelta::beta), {rows, heads});
  if (!absent(in, first + GatedDelta::doc_starts))
    need_int(op, "doc_starts", type(GatedDelta::doc_starts), {rows});
}

Results infer_gated_delta(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "gated_delta";
  const auto& a = std::get<GatedDeltaAttrs>(attrs);
  check_operands_of(kName, a, in, GatedDelta::q);
  const Shape& v = in[GatedDelta::v].shape;
  if (absent(in, GatedDelta::state)) return {real(v)};
  const int64_t heads = in[GatedDelta::log_decay].shape[1];
  const Shape state{a.batch, heads, in[GatedDelta::q].shape[1] / a.key_heads, v[1] / heads};
  need_float(kName, "state", in[GatedDelta::state], state);
  if (!absent(in, GatedDelta::doc_starts))
    fail(kName, "a state, of one text a row, needs operands without doc_starts");
  return {real(v), real(state)};
}

Results infer_gated_delta_grad(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "gated_delta_grad";
  check_operands_of(kName, std::get<GatedDeltaAttrs>(attrs), in, GatedDeltaGrad::q);
  need_float(kName, "do", in[GatedDeltaGrad::dout], in[GatedDeltaGrad::v].shape);
  Results results;
  for (const SlotId slot : {GatedDeltaGrad::q, GatedDeltaGrad::k, GatedDeltaGrad::v,
                            GatedDeltaGrad::log_decay, GatedDeltaGrad::beta})
    results.push_back(real(in[slot].shape));
  return results;
}

Values vjp_gated_delta(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  Values result(n.operands.size(), kNoValue);
  if (!absent(n, GatedDelta::state)) return result;
  Values operands = {call.dresults[0]};
  operands.insert(operands.end(), n.operands.begin(), n.operands.end());
  const Values gradients = b.emit(OpCode::gated_delta_grad, n.attrs, std::move(operands));
  std::ranges::copy(gradients, result.begin());
  return result;
}

// Three products of a state and a token of each head; of pairs of tokens within chunks, four, half
// of which no token sees. kTimes: as often, backward with the forward pass made again.
template <int kTimes, SlotId kFirst>
Cost cost_gated_delta(const Graph& graph, const Node& node) {
  const auto& a = std::get<GatedDeltaAttrs>(node.attrs);
  const auto width = [&](SlotId slot) {
    return static_cast<double>(graph.type(node.in(kFirst + slot)).shape[1]);
  };
  const double heads = width(GatedDelta::log_decay);
  const double keys = width(GatedDelta::q) / static_cast<double>(a.key_heads);
  const double values = width(GatedDelta::v) / heads;
  const auto rows = static_cast<double>(graph.type(node.in(kFirst)).shape[0]);
  const double each = 3 * keys * values + kDeltaChunk * (keys + values);
  return {.flops = 2.0 * kTimes * rows * heads * each, .bytes = moved_bytes(graph, node)};
}

}  // namespace

constinit const OpDef defs::gated_delta =
    define(OpCode::gated_delta, {.infer = infer_gated_delta,
                                 .vjp = vjp_gated_delta,
                                 .decompose = decompose_gated_delta,
                                 .scale = scale::of_steps,
                                 .cost = cost_gated_delta<1, GatedDelta::q>});
constinit const OpDef defs::gated_delta_grad =
    define(OpCode::gated_delta_grad, {.infer = infer_gated_delta_grad,
                                      .decompose = decompose_gated_delta_grad,
                                      .scale = scale::of_steps,
                                      .cost = cost_gated_delta<3, GatedDeltaGrad::q>});

}  // namespace octet::ops
