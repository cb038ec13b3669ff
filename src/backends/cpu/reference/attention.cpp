#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/kernels.h"
#include "ir/ops/attention.h"
#include "ir/ops/rope.h"

namespace octet::reference {
namespace {

// Calls f(batch entry, query head, query) for every row of lse, in order.
template <typename F>
void for_each_query(const AttentionAttrs& a, F&& f) {
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t t = 0; t < a.seq; ++t) f(b, h, t);
    }
  }
}

size_t lse_at(const AttentionAttrs& a, int64_t b, int64_t h, int64_t t) {
  return size((b * a.heads + h) * a.seq + t);
}

// The head_dim elements of one head at one position; `heads` of that tensor.
std::span<double> head(const RefTensor& t, const AttentionAttrs& a, int64_t heads, int64_t b,
                       int64_t position) {
  return t.data.subspan(size((b * a.seq + position) * heads * a.head_dim));
}
std::span<double> query_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                             int64_t position) {
  return head(t, a, a.heads, b, position).subspan(size(h * a.head_dim), size(a.head_dim));
}
// The key or value head that query head h reads.
std::span<double> key_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                           int64_t position) {
  const int64_t kv_head = h / (a.heads / a.kv_heads);
  return head(t, a, a.kv_heads, b, position).subspan(size(kv_head * a.head_dim), size(a.head_dim));
}

double inner(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(std::span<double> to, double factor, std::span<const double> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

int64_t n_keys(const AttentionAttrs& a, int64_t query) {
  return a.causal ? query + 1 : a.seq;
}

// The first key that a query sees: its document's, where the call has the operand in this place.
int64_t first_key(const RefCall& call, size_t place, int64_t b, int64_t query) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  if (call.in.size() <= place) return 0;
  return static_cast<int64_t>(call.in[place].data[size(b * a.seq + query)]);
}

}  // namespace

void rope(const RefCall& call) {
  const auto& a = std::get<RopeAttrs>(call.attrs);
  const std::vector<double> frequencies = rope_frequencies(a);
  const size_t half = size(a.head_dim / 2);
  const auto x = call.in[0].data, y = call.out[0].data;
  for (size_t t = 0; t < dim(call.in[0], 0); ++t) {
    for (size_t h = 0; h < size(a.heads); ++h) {
      const size_t start = (t * size(a.heads) + h) * size(a.head_dim);
      for (size_t i = 0; i < half; ++i) {
        const double angle = call.in[1].data[t] * frequencies[i] * (a.inverse ? -1 : 1);
        const double low = x[start + i], high = x[start + half + i];
        y[start + i] = low * std::cos(angle) - high * std::sin(angle);
        y[start + half + i] = high * std::cos(angle) + low * std::sin(angle);
      }
    }
  }
  if (a.amax) amax_of_results(call, 1);
}

void attention(const RefCall& call) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  std::fill(call.out[0].data.begin(), call.out[0].data.end(), 0.0);
  for_each_query(a, [&](int64_t b, int64_t h, int64_t t) {
    const auto q = query_head(call.in[0], a, b, h, t);
    std::vector<double> scores;
    const int64_t first = first_key(call, DocumentAttention::doc_starts, b, t);
    for (int64_t k = first; k < n_keys(a, t); ++k) {
      scores.push_back(a.scale * inner(q, key_head(call.in[1], a, b, h, k)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double s : scores) sum += std::exp(s - largest);
    const double lse = largest + std::log(sum);
    const auto o = query_head(call.out[0], a, b, h, t);
    for (int64_t k = first; k < n_keys(a, t); ++k) {
      const double p = std::exp(scores[size(k - first)] - largest) / sum;
      add_scaled(o, p, key_head(call.in[2], a, b, h, k));
    }
    call.out[1].data[lse_at(a, b, h, t)] = lse;
  });
}

void attention_grad(const RefCall& call) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  for (RefTensor& out : call.out) std::fill(out.data.begin(), out.data.end(), 0.0);
  for_each_query(a, [&](int64_t b, int64_t h, int64_t t) {
    const auto dout = query_head(call.in[0], a, b, h, t);
    const auto q = query_head(call.in[1], a, b, h, t);
    const double delta = inner(dout, query_head(call.in[4], a, b, h, t));
    const double lse = call.in[5].data[lse_at(a, b, h, t)];
    const auto dq = query_head(call.out[0], a, b, h, t);
    const int64_t first = first_key(call, DocumentAttentionGrad::doc_starts, b, t);
    for (int64_t k = first; k < n_keys(a, t); ++k) {
      const auto key = key_head(call.in[2], a, b, h, k);
      const double p = std::exp(a.scale * inner(q, key) - lse);
      const double dp = inner(dout, key_head(call.in[3], a, b, h, k));
      const double ds = a.scale * p * (dp - delta);
      add_scaled(dq, ds, key);
      add_scaled(key_head(call.out[1], a, b, h, k), ds, q);
      add_scaled(key_head(call.out[2], a, b, h, k), p, dout);
    }
  });
}

}  // namespace octet::reference
