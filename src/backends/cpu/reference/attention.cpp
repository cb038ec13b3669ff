#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/kernels.h"

namespace octet::reference {
namespace {

// Calls f(batch entry, query head, query) for every row of lse, in order.
template <typename F>
void for_each_query(const AttentionAttrs& a, F&& f) {
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t t = 0; t < a.q_len; ++t) f(b, h, t);
    }
  }
}

size_t lse_at(const AttentionAttrs& a, int64_t b, int64_t h, int64_t t) {
  return size((b * a.heads + h) * a.q_len + t);
}

// One row's heads.
std::span<double> heads_at(const RefTensor& t, const AttentionAttrs& a, int64_t heads, int64_t at) {
  return t.data.subspan(size(at * heads * a.head_dim));
}
std::span<double> query_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                             int64_t position) {
  return heads_at(t, a, a.heads, b * a.q_len + position)
      .subspan(size(h * a.head_dim), size(a.head_dim));
}
// The key or value head that query head h reads.
std::span<double> key_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                           int64_t position) {
  const int64_t kv_head = h / (a.heads / a.kv_heads);
  return heads_at(t, a, a.kv_heads, b * a.kv_len + position)
      .subspan(size(kv_head * a.head_dim), size(a.head_dim));
}

double inner(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(std::span<double> to, double factor, std::span<const double> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

// The keys [begin, end) that a query sees.
struct KeyRange {
  int64_t begin = 0, end = 0;
};

// Keys of the mask, for a query at this place.
KeyRange masked(const AttentionAttrs& a, int64_t place) {
  KeyRange keys{0, a.kv_len};
  if (a.mask == AttentionMask::causal) {
    keys.end = std::clamp<int64_t>(place + 1, 0, a.kv_len);
  } else if (a.window > 0) {
    keys.end = std::clamp<int64_t>(place + a.window, 0, a.kv_len);
  }
  if (a.window > 0) keys.begin = std::max<int64_t>(0, place - a.window + 1);
  return keys;
}

// Keys that a query sees: over a cache where the call has positions, with ranges at these slots.
struct RangeSlots {
  SlotId key_begins, key_ends;
};
KeyRange seen_keys(const RefCall& call, const RangeSlots& slots, int64_t b, int64_t query) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  const auto at = [&](SlotId slot) {
    return static_cast<int64_t>(call.in[slot].data[size(b * a.q_len + query)]);
  };
  const bool is_cached =
      slots.key_ends == Attention::key_ends && !optional(call.in, Attention::positions).empty();
  int64_t place = query + a.kv_len - a.q_len;
  if (is_cached) place = std::min(at(Attention::positions), a.kv_len - 1);
  KeyRange keys = masked(a, place);
  if (!optional(call.in, slots.key_begins).empty())
    keys.begin = std::max(keys.begin, at(slots.key_begins));
  if (!optional(call.in, slots.key_ends).empty()) keys.end = std::min(keys.end, at(slots.key_ends));
  return keys;
}

// The element of a bias, or of its gradient, of an entry, a head, a query and a key.
double& bias_at(const RefTensor& bias, const int64_t (&places)[4]) {
  size_t at = 0;
  for (size_t i = 0; i < 4; ++i) at = at * dim(bias, i) + (dim(bias, i) == 1 ? 0 : size(places[i]));
  return bias.data[at];
}
double bias_of(const RefCall& call, SlotId slot, const int64_t (&places)[4]) {
  if (optional(call.in, slot).empty()) return 0;
  return bias_at(call.in[slot], places);
}

double capped(const AttentionAttrs& a, double s) {
  return a.softcap > 0 ? a.softcap * std::tanh(s / a.softcap) : s;
}
// Its derivative, of the capped score.
double cap_slope(const AttentionAttrs& a, double capped_score) {
  const double curve = a.softcap > 0 ? capped_score / a.softcap : 0;
  return 1 - curve * curve;
}

}  // namespace

void attention(const RefCall& call) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), 0.0);
  for_each_query(a, [&](int64_t b, int64_t h, int64_t t) {
    const auto q = query_head(call.in[0], a, b, h, t);
    double& lse_out = call.out[1].data[lse_at(a, b, h, t)];
    lse_out = -std::numeric_limits<double>::infinity();
    const KeyRange keys = seen_keys(call, {Attention::key_begins, Attention::key_ends}, b, t);
    if (keys.begin >= keys.end) return;
    std::vector<double> scores;
    for (int64_t k = keys.begin; k < keys.end; ++k) {
      scores.push_back(capped(a, a.scale * inner(q, key_head(call.in[1], a, b, h, k))) +
                       bias_of(call, Attention::bias, {b, h, t, k}));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    if (largest == lse_out) return;  // the bias hides all
    double sum = 0;
    for (const double s : scores) sum += std::exp(s - largest);
    const double lse = largest + std::log(sum);
    const auto o = query_head(call.out[0], a, b, h, t);
    for (int64_t k = keys.begin; k < keys.end; ++k) {
      const double p = std::exp(scores[size(k - keys.begin)] - largest) / sum;
      add_scaled(o, p, key_head(call.in[2], a, b, h, k));
    }
    lse_out = lse;
  });
}

void attention_grad(const RefCall& call) {
  using Grad = AttentionGrad;
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  for (RefTensor& out : call.out) std::fill(out.data.begin(), out.data.end(), 0.0);
  for_each_query(a, [&](int64_t b, int64_t h, int64_t t) {
    const auto dout = query_head(call.in[0], a, b, h, t);
    const auto q = query_head(call.in[1], a, b, h, t);
    const double delta = inner(dout, query_head(call.in[4], a, b, h, t));
    const double lse = call.in[5].data[lse_at(a, b, h, t)];
    if (lse == -std::numeric_limits<double>::infinity()) return;  // it sees no key
    const auto dq = query_head(call.out[0], a, b, h, t);
    const KeyRange keys = seen_keys(call, {Grad::key_begins, Grad::key_ends}, b, t);
    for (int64_t k = keys.begin; k < keys.end; ++k) {
      const auto key = key_head(call.in[2], a, b, h, k);
      const double score = capped(a, a.scale * inner(q, key));
      const double p = std::exp(score + bias_of(call, Grad::bias, {b, h, t, k}) - lse);
      const double above = inner(dout, key_head(call.in[3], a, b, h, k)) - delta;
      if (a.bias_gradient) bias_at(call.out[Grad::dbias], {b, h, t, k}) += p * above;
      const double ds = a.scale * p * above * cap_slope(a, score);
      add_scaled(dq, ds, key);
      add_scaled(key_head(call.out[1], a, b, h, k), ds, q);
      add_scaled(key_head(call.out[2], a, b, h, k), p, dout);
    }
  });
}

}  // namespace octet::reference
