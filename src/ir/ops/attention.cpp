// Scaled dot-product attention, per batch entry and head: o = softmax(scale * q k^T + mask) v.
//   q, o: [B*T, H*dh]    k, v: [B*T, Hkv*dh], head h reads kv head h / (H/Hkv)    lse: [B*H*T], the
//   log of the softmax's sum
// causal: query t sees keys 0..t, with a window w those from t - w + 1 on.
// doc_starts (optional): i32 [B*T], where in its sequence the document of each token begins; query
// t sees no key before it.
// Over a KV cache k and v have `capacity` rows a batch entry, and query t, which stands at
// positions[t] (i32 [B*T]), sees those that it has written and those before: rows 0..positions[t].
// A query at a negative position sees none: o = 0. No gradient flows.
#include <algorithm>
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

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
  if (a.window < 0 || (a.window > 0 && !a.causal)) {
    fail(op, "expected a window of 0 or more keys, of causal attention, got {}", a.window);
  }
  if (a.heads % a.kv_heads != 0) {
    fail(op, "heads must be a multiple of kv_heads, got {} and {}", a.heads, a.kv_heads);
  }
  need_dims(op, "batch x seq x heads x head_dim", {a.batch, a.seq, a.heads, a.head_dim});
  if (a.capacity < 0 || (a.capacity > 0 && !a.causal)) {
    fail(op, "expected a capacity of at least 0, and causal over a cache, got {}", a.capacity);
  }
  const int64_t rows = a.batch * a.seq, keys = a.capacity > 0 ? a.batch * a.capacity : rows;
  need_dims(op, "batch x capacity x kv_heads x head_dim",
            {a.batch, a.capacity, a.kv_heads, a.head_dim});
  return {{rows, a.heads * a.head_dim}, {keys, a.kv_heads * a.head_dim}, {rows * a.heads}};
}

// The operand in this place, if there is one.
void check_documents(std::string_view op, const Attrs& attrs, Types in, size_t place) {
  if (absent(in, place)) return;
  const auto& a = std::get<AttentionAttrs>(attrs);
  if (!a.causal || a.capacity > 0) fail(op, "doc_starts needs a causal mask and no cache");
  need_int(op, "doc_starts", in[place]);
  need_shape(op, "doc_starts", in[place], {a.batch * a.seq});
}

Results infer_attention(const Attrs& attrs, Types in) {
  const AttentionShapes shapes = check_attention("attention", attrs);
  const auto& a = std::get<AttentionAttrs>(attrs);
  if (absent(in, Attention::positions) != (a.capacity == 0)) {
    fail("attention", "positions belong to a cache, got capacity {}", a.capacity);
  }
  if (a.capacity > 0) {
    need_int("attention", "positions", in[Attention::positions]);
    need_shape("attention", "positions", in[Attention::positions], {a.batch * a.seq});
  }
  need_float("attention", "q", in[0], shapes.q);
  need_float("attention", "k", in[1], shapes.kv);
  need_float("attention", "v", in[2], shapes.kv);
  check_documents("attention", attrs, in, Attention::doc_starts);
  return {real(shapes.q), real(shapes.lse)};
}

Results infer_attention_grad(const Attrs& attrs, Types in) {
  const AttentionShapes shapes = check_attention("attention_grad", attrs);
  if (std::get<AttentionAttrs>(attrs).capacity > 0) {
    fail("attention_grad", "no gradient flows through a cache");
  }
  need_float("attention_grad", "do", in[0], shapes.q);
  need_float("attention_grad", "q", in[1], shapes.q);
  need_float("attention_grad", "k", in[2], shapes.kv);
  need_float("attention_grad", "v", in[3], shapes.kv);
  need_float("attention_grad", "o", in[4], shapes.q);
  need_float("attention_grad", "lse", in[5], shapes.lse);
  check_documents("attention_grad", attrs, in, AttentionGrad::doc_starts);
  return {real(shapes.q), real(shapes.kv), real(shapes.kv)};
}

Values vjp_attention(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  if (call.dresults[0] == kNoValue || std::get<AttentionAttrs>(n.attrs).capacity > 0) {
    return Values(n.operands.size(), kNoValue);
  }
  Values gradients =
      b.emit(OpCode::attention_grad, n.attrs,
             {call.dresults[0], n.in(Attention::q), n.in(Attention::k), n.in(Attention::v),
              n.out(Attention::o), n.out(Attention::lse), n.in(Attention::doc_starts)});
  gradients.resize(n.operands.size(), kNoValue);
  return gradients;
}

// Batch B, kv heads K, query heads of one kv head G, time T, keys S (T without a cache), head size
// D.
class Heads {
 public:
  // Of both what there is.
  struct Masks {
    ValueId positions = kNoValue, doc_starts = kNoValue;
  };
  Heads(Builder& b, const AttentionAttrs& a, const Masks& masks)
      : b_(b),
        a_(a),
        masks_(masks),
        group_(a.heads / a.kv_heads),
        n_keys_(a.capacity > 0 ? a.capacity : a.seq) {}

  // [B*T, H*D] -> [B, K, G, T, D] and back
  ValueId split_q(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, a_.seq, a_.kv_heads, group_, a_.head_dim}),
                        {0, 2, 3, 1, 4});
  }
  ValueId merge_q(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 3, 1, 2, 4}),
                      {a_.batch * a_.seq, a_.heads * a_.head_dim});
  }
  // [B*S, K*D] -> [B, K, S, D] and back
  ValueId split_kv(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, n_keys_, a_.kv_heads, a_.head_dim}), {0, 2, 1, 3});
  }
  ValueId merge_kv(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 2, 1, 3}),
                      {a_.batch * n_keys_, a_.kv_heads * a_.head_dim});
  }
  // [B, K, G, T] <-> [B*H*T]
  Shape rows() const { return {a_.batch, a_.kv_heads, group_, a_.seq}; }
  Shape square() const { return {a_.batch, a_.kv_heads, group_, a_.seq, n_keys_}; }
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
  // Scaled and masked, [B, K, G, T, S]
  ValueId scores(ValueId q, ValueId k) const {
    const ValueId s = b_.scaled(over_head_dim(q, k), a_.scale);
    if (!a_.causal) return s;
    const Shape box{a_.batch, a_.seq, n_keys_};
    const ValueId query =
        masks_.positions == kNoValue
            ? b_.emit1(OpCode::iota, IotaAttrs{.shape = box, .axis = 1}, {})
            : b_.broadcast(b_.reshape(masks_.positions, {a_.batch, a_.seq}), box, {0, 1});
    const ValueId key = b_.emit1(OpCode::iota, IotaAttrs{.shape = box, .axis = 2}, {});
    ValueId seen = hidden(query, key, s);
    if (a_.window > 0) seen = hidden(last_query(box), query, seen);
    if (masks_.doc_starts == kNoValue) return seen;
    const ValueId start =
        b_.broadcast(b_.reshape(masks_.doc_starts, {a_.batch, a_.seq}), box, {0, 1});
    return hidden(key, start, seen);
  }
  // What a query that sees no key has instead of 0 / 0, of x [B, K, G, T, ...].
  ValueId seen(ValueId x, double otherwise) const {
    if (masks_.positions == kNoValue) return x;
    const Shape box = b_.shape(x);
    const Shape rows{a_.batch, a_.seq};
    const ValueId at = b_.reshape(masks_.positions, rows);
    const ValueId first = b_.emit1(OpCode::iota, IotaAttrs{.shape = {1}, .axis = 0}, {});
    const ValueId none =
        b_.emit1(OpCode::less, NoAttrs{}, {at, b_.broadcast(b_.reshape(first, {}), rows, {})});
    return b_.select(b_.broadcast(none, box, {0, 3}), b_.fill(box, otherwise), x);
  }

 private:
  // Minus infinity where low < high, each [B, T, S].
  ValueId hidden(ValueId low, ValueId high, ValueId s) const {
    const ValueId condition = b_.emit1(OpCode::less, NoAttrs{}, {low, high});
    return b_.select(b_.broadcast(condition, square(), {0, 3, 4}),
                     b_.fill(square(), -std::numeric_limits<double>::infinity()), s);
  }
  // The last query within whose window a key is: key + window - 1, of the shape [B, T, S].
  ValueId last_query(const Shape& box) const {
    const Shape from{0, 0, a_.window - 1};
    Shape longer = box;
    longer[2] += from[2];
    const ValueId counted = b_.emit1(OpCode::iota, IotaAttrs{.shape = longer, .axis = 2}, {});
    return b_.emit1(OpCode::slice, SliceAttrs{.start = from, .limit = longer, .stride = {1, 1, 1}},
                    {counted});
  }

  Builder& b_;
  const AttentionAttrs& a_;
  Masks masks_;
  int64_t group_, n_keys_;
};

Values decompose_attention(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a,
                    {.positions = operand(node, Attention::positions),
                     .doc_starts = operand(node, Attention::doc_starts)});
  const ValueId s = heads.scores(heads.split_q(node.operands[0]), heads.split_kv(node.operands[1]));
  const ValueId largest = b.reduce_max(s, {4});
  const ValueId e = b.unary(OpCode::exp, b.sub(s, heads.along_keys(largest)));
  const ValueId sum = b.reduce_sum(e, {4});
  const ValueId p = b.div(e, heads.along_keys(sum));
  const ValueId o = heads.seen(heads.over_keys(p, heads.split_kv(node.operands[2])), 0);
  const ValueId lse = heads.seen(b.add(largest, b.unary(OpCode::log, sum)),
                                 -std::numeric_limits<double>::infinity());
  return {heads.merge_q(o), b.reshape(lse, {a.batch * a.heads * a.seq})};
}

// p = exp(s - lse), delta = sum do * o, ds = p * (do v^T - delta); dv = p^T do, dq = scale ds k, dk
// = scale ds^T q.
Values decompose_attention_grad(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a, {.doc_starts = operand(node, AttentionGrad::doc_starts)});
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
  const auto seq = static_cast<double>(a.seq), capacity = static_cast<double>(a.capacity);
  const double unseen = a.window > 0 ? std::max(0.0, seq - static_cast<double>(a.window)) : 0;
  const double square = (a.causal ? seq * (seq + 1) / 2 : seq * seq) - unseen * (unseen + 1) / 2;
  const double pairs = a.capacity > 0 ? seq * capacity : square;
  const auto width = static_cast<double>(a.batch * a.heads * a.head_dim);
  return {.flops = 2.0 * kProducts * pairs * width, .bytes = moved_bytes(graph, node)};
}

}  // namespace

constinit const OpDef defs::attention = define(OpCode::attention, {.infer = infer_attention,
                                                                   .vjp = vjp_attention,
                                                                   .decompose = decompose_attention,
                                                                   .scale = scale::attention,
                                                                   .cost = cost_attention<2>});
constinit const OpDef defs::attention_grad =
    define(OpCode::attention_grad, {.infer = infer_attention_grad,
                                    .decompose = decompose_attention_grad,
                                    .scale = scale::attention_grad,
                                    .cost = cost_attention<5>});

}  // namespace octet::ops
