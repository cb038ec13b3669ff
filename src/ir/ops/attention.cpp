// Scaled dot-product attention, per batch entry and head: o = softmax(scale * q k^T + mask) v.
//   q, o: [B*T, H*dh]    k, v: [B*T, Hkv*dh], head h reads kv head h / (H/Hkv)    lse: [B*H*T], the
//   log of the softmax's sum
// causal: query t sees keys 0..t.
// doc_starts (optional): i32 [B*T], where in its sequence the document of each token begins; query
// t sees no key before it.
#include "ir/ops/attention.h"

#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

struct AttentionShapes {
  Shape q, kv, lse;
};

AttentionShapes check_attention(std::string_view op, const Attrs& attrs) {
  const auto& a = std::get<AttentionAttrs>(attrs);
  if (a.batch < 1 || a.seq < 1 || a.heads < 1 || a.kv_heads < 1 || a.head_dim < 1) {
    fail(op, "expected batch, seq, heads, kv_heads, head_dim >= 1, got {}, {}, {}, {}, {}", a.batch,
         a.seq, a.heads, a.kv_heads, a.head_dim);
  }
  if (a.heads % a.kv_heads != 0) {
    fail(op, "heads must be a multiple of kv_heads, got {} and {}", a.heads, a.kv_heads);
  }
  need_dims(op, "batch x seq x heads x head_dim", {a.batch, a.seq, a.heads, a.head_dim});
  const int64_t rows = a.batch * a.seq;
  return {{rows, a.heads * a.head_dim}, {rows, a.kv_heads * a.head_dim}, {rows * a.heads}};
}

// The operand in this place, if there is one.
void check_documents(std::string_view op, const Attrs& attrs, Types in, size_t place) {
  if (in.size() <= place) return;
  const auto& a = std::get<AttentionAttrs>(attrs);
  if (!a.causal) fail(op, "doc_starts needs a causal mask");
  need_int(op, "doc_starts", in[place]);
  need_shape(op, "doc_starts", in[place], {a.batch * a.seq});
}

Results infer_attention(const Attrs& attrs, Types in) {
  const AttentionShapes shapes = check_attention("attention", attrs);
  need_float("attention", "q", in[0], shapes.q);
  need_float("attention", "k", in[1], shapes.kv);
  need_float("attention", "v", in[2], shapes.kv);
  check_documents("attention", attrs, in, DocumentAttention::doc_starts);
  return {real(shapes.q), real(shapes.lse)};
}

Results infer_attention_grad(const Attrs& attrs, Types in) {
  const AttentionShapes shapes = check_attention("attention_grad", attrs);
  need_float("attention_grad", "do", in[0], shapes.q);
  need_float("attention_grad", "q", in[1], shapes.q);
  need_float("attention_grad", "k", in[2], shapes.kv);
  need_float("attention_grad", "v", in[3], shapes.kv);
  need_float("attention_grad", "o", in[4], shapes.q);
  need_float("attention_grad", "lse", in[5], shapes.lse);
  check_documents("attention_grad", attrs, in, DocumentAttentionGrad::doc_starts);
  return {real(shapes.q), real(shapes.kv), real(shapes.kv)};
}

Values vjp_attention(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  if (call.dresults[0] == kNoValue) return Values(n.operands.size(), kNoValue);
  Values operands = {call.dresults[0], n.operands[0], n.operands[1],
                     n.operands[2],    n.results[0],  n.results[1]};
  const bool has_documents = n.operands.size() > DocumentAttention::doc_starts;
  if (has_documents) operands.push_back(n.in(DocumentAttention::doc_starts));
  Values gradients = b.emit(OpCode::attention_grad, n.attrs, operands);
  if (has_documents) gradients.push_back(kNoValue);
  return gradients;
}

// Batch B, kv heads K, query heads of one kv head G, time T, head size D.
class Heads {
 public:
  // doc_starts: kNoValue where rows are not divided.
  Heads(Builder& b, const AttentionAttrs& a, ValueId doc_starts)
      : b_(b), a_(a), doc_starts_(doc_starts), group_(a.heads / a.kv_heads) {}

  // [B*T, H*D] -> [B, K, G, T, D] and back
  ValueId split_q(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, a_.seq, a_.kv_heads, group_, a_.head_dim}),
                        {0, 2, 3, 1, 4});
  }
  ValueId merge_q(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 3, 1, 2, 4}),
                      {a_.batch * a_.seq, a_.heads * a_.head_dim});
  }
  // [B*T, K*D] -> [B, K, T, D] and back
  ValueId split_kv(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, a_.seq, a_.kv_heads, a_.head_dim}), {0, 2, 1, 3});
  }
  ValueId merge_kv(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 2, 1, 3}),
                      {a_.batch * a_.seq, a_.kv_heads * a_.head_dim});
  }
  // [B, K, G, T] <-> [B*H*T]
  Shape rows() const { return {a_.batch, a_.kv_heads, group_, a_.seq}; }
  Shape square() const { return {a_.batch, a_.kv_heads, group_, a_.seq, a_.seq}; }
  ValueId along_keys(ValueId rows) const { return b_.broadcast_along(rows, square(), 4); }

  // q k^T over the last axis, [B, K, G, T, T]; v in k's place gives do v^T.
  ValueId over_head_dim(ValueId q, ValueId k) const {
    return b_.emit1(
        OpCode::dot,
        DotAttrs{.batch_a = {0, 1}, .batch_b = {0, 1}, .contract_a = {4}, .contract_b = {3}},
        {q, k});
  }
  // p v, [B, K, G, T, D]
  ValueId over_keys(ValueId p, ValueId v) const {
    return b_.emit1(
        OpCode::dot,
        DotAttrs{.batch_a = {0, 1}, .batch_b = {0, 1}, .contract_a = {4}, .contract_b = {2}},
        {p, v});
  }
  // p^T q over queries and the heads of the group, [B, K, T, D]
  ValueId over_queries(ValueId p, ValueId q) const {
    return b_.emit1(
        OpCode::dot,
        DotAttrs{.batch_a = {0, 1}, .batch_b = {0, 1}, .contract_a = {2, 3}, .contract_b = {2, 3}},
        {p, q});
  }
  // Scaled and masked, [B, K, G, T, T]
  ValueId scores(ValueId q, ValueId k) const {
    const ValueId s = b_.scaled(over_head_dim(q, k), a_.scale);
    if (!a_.causal) return without_other_documents(s);
    const Shape plane{a_.seq, a_.seq};
    const ValueId query = b_.emit1(OpCode::iota, IotaAttrs{.shape = plane, .axis = 0}, {});
    const ValueId key = b_.emit1(OpCode::iota, IotaAttrs{.shape = plane, .axis = 1}, {});
    const ValueId future = b_.emit1(OpCode::less, NoAttrs{}, {query, key});
    return without_other_documents(hidden(b_.broadcast(future, square(), {3, 4}), s));
  }

 private:
  ValueId hidden(ValueId condition, ValueId s) const {
    return b_.select(condition, b_.fill(square(), -std::numeric_limits<double>::infinity()), s);
  }
  ValueId without_other_documents(ValueId s) const {
    if (doc_starts_ == kNoValue) return s;
    const ValueId key = b_.emit1(OpCode::iota, IotaAttrs{.shape = square(), .axis = 4}, {});
    const ValueId start =
        b_.broadcast(b_.reshape(doc_starts_, {a_.batch, a_.seq}), square(), {0, 3});
    return hidden(b_.emit1(OpCode::less, NoAttrs{}, {key, start}), s);
  }

  Builder& b_;
  const AttentionAttrs& a_;
  ValueId doc_starts_;
  int64_t group_;
};

// The operand in this place, or kNoValue.
ValueId documents_of(const Node& node, size_t place) {
  return node.operands.size() > place ? node.operands[place] : kNoValue;
}

Values decompose_attention(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a, documents_of(node, DocumentAttention::doc_starts));
  const ValueId s = heads.scores(heads.split_q(node.operands[0]), heads.split_kv(node.operands[1]));
  const ValueId largest = b.reduce_max(s, {4});
  const ValueId e = b.unary(OpCode::exp, b.sub(s, heads.along_keys(largest)));
  const ValueId sum = b.reduce_sum(e, {4});
  const ValueId p = b.div(e, heads.along_keys(sum));
  const ValueId o = heads.over_keys(p, heads.split_kv(node.operands[2]));
  const ValueId lse = b.add(largest, b.unary(OpCode::log, sum));
  return {heads.merge_q(o), b.reshape(lse, {a.batch * a.heads * a.seq})};
}

// p = exp(s - lse), delta = sum do * o, ds = p * (do v^T - delta); dv = p^T do, dq = scale ds k, dk
// = scale ds^T q.
Values decompose_attention_grad(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a, documents_of(node, DocumentAttentionGrad::doc_starts));
  const ValueId dout = heads.split_q(node.operands[0]);
  const ValueId q = heads.split_q(node.operands[1]);
  const ValueId k = heads.split_kv(node.operands[2]);
  const ValueId v = heads.split_kv(node.operands[3]);
  const ValueId o = heads.split_q(node.operands[4]);
  const ValueId lse = b.reshape(node.operands[5], heads.rows());
  const ValueId p = b.unary(OpCode::exp, b.sub(heads.scores(q, k), heads.along_keys(lse)));
  const ValueId delta = b.reduce_sum(b.mul(dout, o), {4});
  const ValueId dp = heads.over_head_dim(dout, v);
  const ValueId ds = b.scaled(b.mul(p, b.sub(dp, heads.along_keys(delta))), a.scale);
  return {heads.merge_q(heads.over_keys(ds, k)), heads.merge_kv(heads.over_queries(ds, q)),
          heads.merge_kv(heads.over_queries(p, dout))};
}

// Two products forward; backward three more and the scores once again.
template <int kProducts>
Cost cost_attention(const Graph& graph, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const auto seq = static_cast<double>(a.seq);
  const double pairs = a.causal ? seq * (seq + 1) / 2 : seq * seq;
  const auto width = static_cast<double>(a.batch * a.heads * a.head_dim);
  return {.flops = 2.0 * kProducts * pairs * width, .bytes = moved_bytes(graph, node)};
}

}  // namespace

constinit const OpDef kAttention = {.code = OpCode::attention,
                                    .name = "attention",
                                    .operands = {DocumentAttention::operands, 3},
                                    .results = Attention::results,
                                    .infer = infer_attention,
                                    .attrs = default_attrs<AttentionAttrs>,
                                    .vjp = vjp_attention,
                                    .decompose = decompose_attention,
                                    .cost = cost_attention<2>,
                                    .statistics = 0b10};
constinit const OpDef kAttentionGrad = {.code = OpCode::attention_grad,
                                        .name = "attention_grad",
                                        .operands = {DocumentAttentionGrad::operands, 6},
                                        .results = AttentionGrad::results,
                                        .infer = infer_attention_grad,
                                        .attrs = default_attrs<AttentionAttrs>,
                                        .decompose = decompose_attention_grad,
                                        .cost = cost_attention<5>};

}  // namespace octet::ops
