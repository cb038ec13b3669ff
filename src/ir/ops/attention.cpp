// Scaled dot-product attention, per batch entry and head: o = softmax(scale * q k^T + bias) v over
// the keys that a query sees.
//   q, o: [B*Tq, H*dh]    k, v: [B*Tk, Hkv*dh], head h reads kv head h / (H/Hkv)    lse: [B*H*Tq],
//   the log of the softmax's sum
// Query t stands at t' = t + Tk - Tq and sees the keys begin <= s < end:
//   end    the least of Tk, key_ends[t], of a causal mask t' + 1, of a full one with a window w t'
//   +
//          w
//   begin  the largest of 0, key_begins[t], with a window t' - w + 1
// key_begins, key_ends (optional): i32 [B*Tq], neither less than for the query before; any value.
// softcap c: scaled products s become c tanh(s / c), before the bias (Bello et al. 2017).
// bias (optional): [1 or B, 1 or H, 1 or Tq, Tk], the axes of 1 repeated; -Inf hides a key.
// Over a KV cache k and v are it, and query t, which stands at t' = positions[t] (i32 [B*Tq]), sees
// those that it has written and those before: keys 0..t'. No gradient flows.
// A query that sees no key: o = 0, lse = -Inf, gradients 0.
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
  if (a.batch < 1 || a.q_len < 1 || a.kv_len < 1 || a.heads < 1 || a.kv_heads < 1 ||
      a.head_dim < 1) {
    fail(op,
         "expected batch, q_len, kv_len, heads, kv_heads, head_dim >= 1, got {}, {}, {}, {}, {}, "
         "{}",
         a.batch, a.q_len, a.kv_len, a.heads, a.kv_heads, a.head_dim);
  }
  if (a.window < 0) fail(op, "expected a window of 0 or more keys, got {}", a.window);
  if (!(a.softcap >= 0)) fail(op, "expected a softcap of 0 or more, got {}", a.softcap);
  if (a.heads % a.kv_heads != 0) {
    fail(op, "heads must be a multiple of kv_heads, got {} and {}", a.heads, a.kv_heads);
  }
  need_dims(op, "batch x heads x q_len x head_dim", {a.batch, a.heads, a.q_len, a.head_dim});
  need_dims(op, "batch x kv_heads x kv_len x head_dim",
            {a.batch, a.kv_heads, a.kv_len, a.head_dim});
  const int64_t rows = a.batch * a.q_len;
  return {{rows, a.heads * a.head_dim},
          {a.batch * a.kv_len, a.kv_heads * a.head_dim},
          {rows * a.heads}};
}

// Slots of the operands that say what queries see.
struct MaskSlots {
  SlotId key_begins, key_ends, bias;
};
constexpr MaskSlots kMasksOfForward = {Attention::key_begins, Attention::key_ends, Attention::bias};
constexpr MaskSlots kMasksOfGradient = {AttentionGrad::key_begins, AttentionGrad::key_ends,
                                        AttentionGrad::bias};

void check_bias(std::string_view op, const AttentionAttrs& a, const TensorType& bias) {
  need_float(op, "bias", bias);
  const Shape whole{a.batch, a.heads, a.q_len, a.kv_len};
  bool fits = bias.shape.size() == 4 && bias.shape[3] == a.kv_len;
  for (size_t i = 0; fits && i < 3; ++i) fits = bias.shape[i] == 1 || bias.shape[i] == whole[i];
  if (!fits) {
    fail(op, "bias must be {}, but for the last axis 1 where it repeats, got {}", to_string(whole),
         to_string(bias.shape));
  }
}

void check_masks(std::string_view op, const Attrs& attrs, Types in, const MaskSlots& slots) {
  const auto& a = std::get<AttentionAttrs>(attrs);
  for (const SlotId slot : {slots.key_begins, slots.key_ends}) {
    if (absent(in, slot)) continue;
    const std::string_view what = slot == slots.key_begins ? "key_begins" : "key_ends";
    need_int(op, what, in[slot], {a.batch * a.q_len});
  }
  if (!absent(in, slots.bias)) {
    check_bias(op, a, in[slots.bias]);
  } else if (a.bias_gradient) {
    fail(op, "bias_gradient needs a bias");
  }
}

Results infer_attention(const Attrs& attrs, Types in) {
  const AttentionShapes shapes = check_attention("attention", attrs);
  const auto& a = std::get<AttentionAttrs>(attrs);
  if (!absent(in, Attention::positions)) {
    need_int("attention", "positions", in[Attention::positions], {a.batch * a.q_len});
    if (a.mask != AttentionMask::causal || !absent(in, Attention::key_begins) ||
        !absent(in, Attention::key_ends)) {
      fail("attention", "positions, of a KV cache, need a causal mask without ranges of keys");
    }
  }
  need_float("attention", "q", in[0], shapes.q);
  need_float("attention", "k", in[1], shapes.kv);
  need_float("attention", "v", in[2], shapes.kv);
  check_masks("attention", attrs, in, kMasksOfForward);
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
  check_masks("attention_grad", attrs, in, kMasksOfGradient);
  Results results = {real(shapes.q), real(shapes.kv), real(shapes.kv)};
  if (std::get<AttentionAttrs>(attrs).bias_gradient)
    results.push_back(real(in[AttentionGrad::bias].shape));
  return results;
}

Values vjp_attention(Builder& b, const VjpCall& call) {
  only_first_gradient(call);
  const Node& n = call.node;
  if (!absent(n, Attention::positions)) return Values(n.operands.size(), kNoValue);
  auto attrs = std::get<AttentionAttrs>(n.attrs);
  attrs.bias_gradient = call.wants(Attention::bias);
  const Values gradients =
      b.emit(OpCode::attention_grad, attrs,
             {call.dresults[0], n.in(Attention::q), n.in(Attention::k), n.in(Attention::v),
              n.out(Attention::o), n.out(Attention::lse), n.in(Attention::key_begins),
              n.in(Attention::key_ends), n.in(Attention::bias)});
  Values result(n.operands.size(), kNoValue);
  std::copy_n(gradients.begin(), 3, result.begin());
  if (attrs.bias_gradient) result[Attention::bias] = gradients[AttentionGrad::dbias];
  return result;
}

// Batch B, kv heads K, query heads of one kv head G, queries T, keys S, head size D.
class Heads {
 public:
  // Operands that say what queries see, as far as they are there.
  struct Masks {
    ValueId positions = kNoValue, key_begins = kNoValue, key_ends = kNoValue, bias = kNoValue;
  };
  Heads(Builder& b, const AttentionAttrs& a, const Masks& masks)
      : b_(b), a_(a), masks_(masks), group_(a.heads / a.kv_heads) {}

  // [B*T, H*D] -> [B, K, G, T, D] and back
  ValueId split_q(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, a_.q_len, a_.kv_heads, group_, a_.head_dim}),
                        {0, 2, 3, 1, 4});
  }
  ValueId merge_q(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 3, 1, 2, 4}),
                      {a_.batch * a_.q_len, a_.heads * a_.head_dim});
  }
  // [B*S, K*D] -> [B, K, S, D] and back
  ValueId split_kv(ValueId x) const {
    return b_.transpose(b_.reshape(x, {a_.batch, a_.kv_len, a_.kv_heads, a_.head_dim}),
                        {0, 2, 1, 3});
  }
  ValueId merge_kv(ValueId x) const {
    return b_.reshape(b_.transpose(x, {0, 2, 1, 3}),
                      {a_.batch * a_.kv_len, a_.kv_heads * a_.head_dim});
  }
  // [B, K, G, T] <-> [B*H*T]
  Shape rows() const { return {a_.batch, a_.kv_heads, group_, a_.q_len}; }
  Shape square() const { return {a_.batch, a_.kv_heads, group_, a_.q_len, a_.kv_len}; }
  ValueId along_keys(ValueId rows) const { return b_.broadcast_along(rows, square(), 4); }

  // q k^T over the last axis, [B, K, G, T, S]; v in k's place gives do v^T.
  ValueId over_head_dim(ValueId q, ValueId k) const { return dot(q, k, {4}, {3}); }
  // p v, [B, K, G, T, D]
  ValueId over_keys(ValueId p, ValueId v) const { return dot(p, v, {4}, {2}); }
  // p^T q over queries and the heads of the group, [B, K, S, D]
  ValueId over_queries(ValueId p, ValueId q) const { return dot(p, q, {2, 3}, {2, 3}); }
  // Scaled, with the bias, and masked, [B, K, G, T, S]
  ValueId scores(ValueId q, ValueId k) const {
    ValueId s = b_.scaled(over_head_dim(q, k), a_.scale);
    if (a_.softcap > 0) s = b_.scaled(capped(s), a_.softcap);
    if (masks_.bias != kNoValue) s = b_.add(s, repeated_bias());
    const Shape box{a_.batch, a_.q_len, a_.kv_len};
    const bool is_causal = a_.mask == AttentionMask::causal;
    if (is_causal || a_.window > 0) {
      // Places: of a query t' and of a key, both so much higher that t' is not below 0.
      const int64_t ahead = masks_.positions == kNoValue ? a_.kv_len - a_.q_len : 0;
      const ValueId query = masks_.positions == kNoValue
                                ? counted(box, 1, std::max<int64_t>(ahead, 0))
                                : of_queries(masks_.positions, box);
      const ValueId key = counted(box, 2, std::max<int64_t>(-ahead, 0));
      if (is_causal) s = hidden(query, key, s);
      if (a_.window > 0) {
        const int64_t reach = a_.window - 1;
        s = hidden(counted(box, 2, std::max<int64_t>(-ahead, 0) + reach), query, s);
        if (!is_causal) s = hidden(counted(box, 1, std::max<int64_t>(ahead, 0) + reach), key, s);
      }
    }
    if (masks_.key_begins != kNoValue)
      s = hidden(counted(box, 2, 0), of_queries(masks_.key_begins, box), s);
    if (masks_.key_ends != kNoValue)
      s = hidden(of_queries(masks_.key_ends, box), counted(box, 2, 1), s);
    return s;
  }
  // ds of capped scores as that of the products: times 1 - tanh^2.
  ValueId uncapped(ValueId ds, ValueId q, ValueId k) const {
    if (a_.softcap == 0) return ds;
    const ValueId curve = capped(b_.scaled(over_head_dim(q, k), a_.scale));
    return b_.mul(ds, b_.sub(b_.fill(square(), 1), b_.unary(OpCode::square, curve)));
  }
  // True if a query may see no key, for what it says itself.
  bool has_empty_rows() const {
    return masks_.key_begins != kNoValue || masks_.key_ends != kNoValue ||
           masks_.bias != kNoValue || (a_.mask == AttentionMask::causal && a_.q_len > a_.kv_len);
  }
  // x, or `otherwise` where it is not above `low`: NaN too, which stays in the scores.
  ValueId above(ValueId x, double low, double otherwise) const {
    if (!has_empty_rows()) return x;
    const ValueId is_above = b_.less(b_.fill_like(x, low), x);
    return b_.select(is_above, x, b_.fill_like(x, otherwise));
  }
  // x [B, K, G, T, ...] with `otherwise` for a query at a negative position, in place of 0 / 0.
  ValueId seen(ValueId x, double otherwise) const {
    if (masks_.positions == kNoValue) return x;
    const Shape box = b_.shape(x);
    const Shape rows{a_.batch, a_.q_len};
    const ValueId at = b_.reshape(masks_.positions, rows);
    const ValueId first = b_.iota({1}, 0);
    const ValueId none = b_.less(at, b_.broadcast(b_.reshape(first, {}), rows, {}));
    return b_.select(b_.broadcast(none, box, {0, 3}), b_.fill(box, otherwise), x);
  }
  // The gradient of the bias from that of the scores, [B, K, G, T, S].
  ValueId bias_gradient(ValueId ds) const {
    const Shape& shape = b_.shape(masks_.bias);
    Shape repeated;
    if (shape[0] < a_.batch) repeated.push_back(0);
    if (shape[1] < a_.heads) repeated.insert(repeated.end(), {1, 2});
    if (shape[2] < a_.q_len) repeated.push_back(3);
    return b_.reshape(repeated.empty() ? ds : b_.reduce_sum(ds, repeated), shape);
  }

 private:
  ValueId capped(ValueId s) const { return b_.unary(OpCode::tanh, b_.scaled(s, 1 / a_.softcap)); }
  // Dot of each batch entry and kv head, over these axes of x and of y.
  ValueId dot(ValueId x, ValueId y, const Shape& over_x, const Shape& over_y) const {
    const DotAttrs attrs{
        .batch_a = {0, 1}, .batch_b = {0, 1}, .contract_a = over_x, .contract_b = over_y};
    return b_.emit1(OpCode::dot, attrs, {x, y});
  }

  // 0, 1, ... from `first` on along an axis of the shape.
  ValueId counted(const Shape& box, int64_t axis, int64_t first) const {
    if (first == 0) return b_.iota(box, axis);
    Shape longer = box;
    longer[at(axis)] += first;
    return b_.slice(b_.iota(longer, axis), axis, first, box[at(axis)]);
  }
  // i32 [B*T] as [B, T, S]
  ValueId of_queries(ValueId x, const Shape& box) const {
    return b_.broadcast(b_.reshape(x, {a_.batch, a_.q_len}), box, {0, 1});
  }
  // Minus infinity where low < high, each [B, T, S].
  ValueId hidden(ValueId low, ValueId high, ValueId s) const {
    const ValueId condition = b_.less(low, high);
    return b_.select(b_.broadcast(condition, square(), {0, 3, 4}),
                     b_.fill(square(), -std::numeric_limits<double>::infinity()), s);
  }
  // The bias as [B, K, G, T, S]
  ValueId repeated_bias() const {
    const Shape& shape = b_.shape(masks_.bias);
    Shape dims, axes;
    const auto keep = [&](int64_t axis, int64_t n) { dims.push_back(n), axes.push_back(axis); };
    if (shape[0] == a_.batch) keep(0, a_.batch);
    if (shape[1] == a_.heads) keep(1, a_.kv_heads), keep(2, group_);
    if (shape[2] == a_.q_len) keep(3, a_.q_len);
    keep(4, a_.kv_len);
    return b_.broadcast(b_.reshape(masks_.bias, dims), square(), axes);
  }

  Builder& b_;
  const AttentionAttrs& a_;
  Masks masks_;
  int64_t group_;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Values decompose_attention(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a,
                    {.positions = node.in(Attention::positions),
                     .key_begins = node.in(Attention::key_begins),
                     .key_ends = node.in(Attention::key_ends),
                     .bias = node.in(Attention::bias)});
  const ValueId s = heads.scores(heads.split_q(node.operands[0]), heads.split_kv(node.operands[1]));
  const ValueId largest = heads.above(b.reduce_max(s, {4}), -kInfinity, 0);
  const ValueId e = b.unary(OpCode::exp, b.sub(s, heads.along_keys(largest)));
  const ValueId sum = b.reduce_sum(e, {4});
  const ValueId p = b.div(e, heads.along_keys(heads.above(sum, 0, 1)));
  const ValueId o = heads.seen(heads.over_keys(p, heads.split_kv(node.operands[2])), 0);
  const ValueId lse = heads.seen(b.add(largest, b.unary(OpCode::log, sum)), -kInfinity);
  return {heads.merge_q(o), b.reshape(lse, {a.batch * a.heads * a.q_len})};
}

// p = exp(s - lse), delta = sum do * o, ds = p * (do v^T - delta), the bias's gradient; dv = p^T
// do, dq = scale ds k, dk = scale ds^T q, of capped scores with ds (1 - tanh^2).
Values decompose_attention_grad(Builder& b, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const Heads heads(b, a,
                    {.key_begins = node.in(AttentionGrad::key_begins),
                     .key_ends = node.in(AttentionGrad::key_ends),
                     .bias = node.in(AttentionGrad::bias)});
  const ValueId dout = heads.split_q(node.operands[0]);
  const ValueId q = heads.split_q(node.operands[1]);
  const ValueId k = heads.split_kv(node.operands[2]);
  const ValueId v = heads.split_kv(node.operands[3]);
  const ValueId o = heads.split_q(node.operands[4]);
  const ValueId lse = heads.above(b.reshape(node.operands[5], heads.rows()), -kInfinity, 0);
  const ValueId p = b.unary(OpCode::exp, b.sub(heads.scores(q, k), heads.along_keys(lse)));
  const ValueId delta = b.reduce_sum(b.mul(dout, o), {4});
  const ValueId dp = heads.over_head_dim(dout, v);
  const ValueId unscaled = b.mul(p, b.sub(dp, heads.along_keys(delta)));
  const ValueId ds = b.scaled(heads.uncapped(unscaled, q, k), a.scale);
  Values gradients = {heads.merge_q(heads.over_keys(ds, k)),
                      heads.merge_kv(heads.over_queries(ds, q)),
                      heads.merge_kv(heads.over_queries(p, dout))};
  if (a.bias_gradient) gradients.push_back(heads.bias_gradient(unscaled));
  return gradients;
}

// The sum over queries t of t' + shift, no less than 0 and no more than kv_len.
double sum_over_queries(const AttentionAttrs& a, int64_t shift) {
  const auto keys = static_cast<double>(a.kv_len);
  const auto below = [&](int64_t end) {
    const auto n = static_cast<double>(end);
    return n <= 0 ? 0 : n <= keys ? n * (n - 1) / 2 : keys * (keys - 1) / 2 + (n - keys) * keys;
  };
  const int64_t first = a.kv_len - a.q_len + shift;
  return below(first + a.q_len) - below(first);
}

// Pairs of a query and a key that it may see, of one head of an entry.
double pairs_of(const AttentionAttrs& a, bool is_cached) {
  const auto square = static_cast<double>(a.q_len) * static_cast<double>(a.kv_len);
  if (is_cached) return square;
  const bool is_causal = a.mask == AttentionMask::causal;
  const int64_t window = a.window > 0 ? a.window : a.kv_len;
  const double up_to = is_causal ? sum_over_queries(a, 1) : sum_over_queries(a, window);
  if (a.window == 0) return is_causal ? up_to : square;
  return up_to - sum_over_queries(a, 1 - a.window);
}

// Two products forward; backward three more and the scores once again. kPositions: of queries in a
// cache.
template <int kProducts, SlotId kPositions>
Cost cost_attention(const Graph& graph, const Node& node) {
  const auto& a = std::get<AttentionAttrs>(node.attrs);
  const bool is_cached = node.in(kPositions) != kNoValue;
  const auto width = static_cast<double>(a.batch * a.heads * a.head_dim);
  return {.flops = 2.0 * kProducts * pairs_of(a, is_cached) * width,
          .bytes = moved_bytes(graph, node)};
}

}  // namespace

constinit const OpDef defs::attention =
    define(OpCode::attention, {.infer = infer_attention,
                               .vjp = vjp_attention,
                               .decompose = decompose_attention,
                               .scale = scale::attention,
                               .cost = cost_attention<2, Attention::positions>});
constinit const OpDef defs::attention_grad =
    define(OpCode::attention_grad, {.infer = infer_attention_grad,
                                    .decompose = decompose_attention_grad,
                                    .scale = scale::attention_grad,
                                    .cost = cost_attention<5, kNoSlot>});

}  // namespace octet::ops
