#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/reference/kernels.h"
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

// One row's heads.
std::span<double> heads_at(const RefTensor& t, const AttentionAttrs& a, int64_t heads, int64_t at) {
  return t.data.subspan(size(at * heads * a.head_dim));
}
std::span<double> query_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                             int64_t position) {
  return heads_at(t, a, a.heads, b * a.seq + position)
      .subspan(size(h * a.head_dim), size(a.head_dim));
}
// The key or value head that query head h reads.
std::span<double> key_head(const RefTensor& t, const AttentionAttrs& a, int64_t b, int64_t h,
                           int64_t position) {
  const int64_t kv_head = h / (a.heads / a.kv_heads);
  const int64_t rows = a.capacity > 0 ? a.capacity : a.seq;
  return heads_at(t, a, a.kv_heads, b * rows + position)
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

// Keys [first_key, n_keys) are those that a query sees.
int64_t n_keys(const AttentionAttrs& a, int64_t query) {
  return a.causal ? query + 1 : a.seq;
}
// The same for a call, over a cache too.
int64_t n_keys(const RefCall& call, const AttentionAttrs& a, int64_t b, int64_t query) {
  if (a.capacity == 0) return n_keys(a, query);
  const double position = call.in[Attention::positions].data[size(b * a.seq + query)];
  return std::clamp<int64_t>(static_cast<int64_t>(position) + 1, 0, a.capacity);
}

// The first of n keys that a query sees: its window's or, where the call has the operand in this
// place, its document's.
int64_t first_key(const RefCall& call, size_t place, int64_t b, int64_t query, int64_t n) {
  const auto& a = std::get<AttentionAttrs>(call.attrs);
  const int64_t windows = a.window == 0 ? 0 : std::max<int64_t>(0, n - a.window);
  if (optional(call.in, place).empty()) return windows;
  const auto start = static_cast<int64_t>(call.in[place].data[size(b * a.seq + query)]);
  return std::clamp<int64_t>(start, windows, n);
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
    const int64_t n = n_keys(call, a, b, t);
    double& lse_out = call.out[1].data[lse_at(a, b, h, t)];
    const int64_t first = first_key(call, Attention::doc_starts, b, t, n);
    if (first == n) {
      lse_out = -std::numeric_limits<double>::infinity();
      return;
    }
    std::vector<double> scores;
    for (int64_t k = first; k < n; ++k) {
      scores.push_back(a.scale * inner(q, key_head(call.in[1], a, b, h, k)));
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double s : scores) sum += std::exp(s - largest);
    const double lse = largest + std::log(sum);
    const auto o = query_head(call.out[0], a, b, h, t);
    for (int64_t k = first; k < n; ++k) {
      const double p = std::exp(scores[size(k - first)] - largest) / sum;
      add_scaled(o, p, key_head(call.in[2], a, b, h, k));
    }
    lse_out = lse;
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
    const int64_t n = n_keys(a, t);
    const int64_t first = first_key(call, AttentionGrad::doc_starts, b, t, n);
    for (int64_t k = first; k < n; ++k) {
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

void cache_write(const RefCall& call) {
  const auto& a = std::get<CacheAttrs>(call.attrs);
  const RefTensor &cache = call.in[CacheWrite::cache], &x = call.in[CacheWrite::x];
  std::copy(cache.data.begin(), cache.data.end(), call.out[CacheWrite::next_cache].data.begin());
  const size_t n = dim(x, 0) / size(a.batch);
  for (size_t t = 0; t < dim(x, 0); ++t) {
    const auto position = static_cast<int64_t>(call.in[CacheWrite::positions].data[t]);
    if (position < 0 || position >= a.capacity) continue;
    const auto to =
        row(call.out[CacheWrite::next_cache], t / n * size(a.capacity) + size(position));
    std::copy_n(row(x, t).begin(), to.size(), to.begin());
  }
}

}  // namespace octet::reference
