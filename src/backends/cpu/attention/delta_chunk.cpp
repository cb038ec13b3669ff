#include "backends/cpu/attention/delta_chunk.h"

#include <cmath>

#include "backends/cpu/elementwise/quantized_matrix.h"

namespace octet::cpu {

float inverse_length(const float* x, int64_t padded) {
  constexpr float kLengthEps = 1e-6f;
  return 1.0f / std::sqrt(dot_delta_rows(x, x, padded) + kLengthEps);
}

float delta_number(In x, int64_t i) {
  float value = 0;
  convert_span(offset(x, i), 1, {&value, Dtype::f32});
  return value;
}

void put_delta_number(Out x, int64_t i, float value) {
  convert_span({&value, Dtype::f32}, 1, offset(x, i));
}

void transpose_delta(const float* x, const DeltaSpan& span, int64_t n_columns, float* y) {
  const int64_t stride = round_up(n_columns, kDeltaLanes);
  for (int64_t c0 = 0; c0 < n_columns; c0 += kDeltaLanes) {
    const int64_t c1 = std::min(n_columns, c0 + kDeltaLanes);
    for (int64_t i = 0; i < span.n; ++i) {
      for (int64_t c = c0; c < c1; ++c) y[c * kDeltaTokens + i] = x[i * stride + c];
    }
    for (int64_t c = c0; c < c1; ++c)
      std::fill(y + c * kDeltaTokens + span.n, y + (c + 1) * kDeltaTokens, 0.0f);
  }
}

DeltaSpan delta_span(const GatedDeltaShape& shape, const GatedDeltaCall& call, int64_t text,
                     int64_t first) {
  DeltaSpan span{.first = first, .n = std::min(kDeltaTokens, shape.seq - first)};
  span.has_state = first > 0 || static_cast<bool>(call.state);
  if (call.doc_starts == nullptr) return span;
  const int32_t* const starts = call.doc_starts + text * shape.seq;
  span.has_state = first > 0 && starts[first] == starts[first - 1];
  for (int64_t i = 1; i < span.n; ++i) {
    if (starts[first + i] != starts[first]) span.n = i;
  }
  return span;
}

DeltaChunk::DeltaChunk(DeltaPieces& pieces, const GatedDeltaShape& of) : shape(of) {
  const int64_t keys = of.key_dim * kDeltaTokens, pairs = kDeltaTokens * kDeltaTokens;
  const int64_t values = kDeltaTokens * columns();
  q = pieces.take(keys), k = pieces.take(keys), k_kept = pieces.take(keys);
  inv_q = pieces.take(kDeltaTokens), inv_k = pieces.take(kDeltaTokens);
  sums = pieces.take(kDeltaTokens), since = pieces.take(kDeltaTokens);
  behind = pieces.take(kDeltaTokens), beta = pieces.take(kDeltaTokens);
  decays = pieces.take(pairs), blocked = pieces.take(pairs), scores = pieces.take(pairs);
  news = pieces.take(values), u = pieces.take(values);
  row = pieces.take(std::max(round_up(of.key_dim, kDeltaLanes), columns()));
}

void DeltaChunk::load(const GatedDeltaCall& call, const DeltaHead& at, const DeltaSpan& of) {
  span = of;
  const int64_t token = at.text * shape.seq + of.first;
  const int64_t key_head = at.head / (shape.heads / shape.key_heads);
  const int64_t width = shape.key_dim, padded = round_up(width, kDeltaLanes);
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  const auto load_unit = [&](const In& x, float length, float* inverse, float* y) {
    std::fill(row + width, row + padded, 0.0f);
    for (int64_t i = 0; i < of.n; ++i) {
      const int64_t place = ((token + i) * shape.key_heads + key_head) * width;
      convert_span(offset(x, place), width, {row, Dtype::f32});
      inverse[i] = inverse_length(row, padded);
      const float factor = inverse[i] * length;
      for (int64_t a = 0; a < width; ++a) y[a * kDeltaTokens + i] = row[a] * factor;
    }
    for (int64_t a = 0; a < width; ++a)
      std::fill(y + a * kDeltaTokens + of.n, y + (a + 1) * kDeltaTokens, 0.0f);
  };
  load_unit(call.q, scale, inv_q, q);
  load_unit(call.k, 1.0f, inv_k, k);
  float sum = 0;
  for (int64_t i = 0; i < kDeltaTokens; ++i) {
    const int64_t place = (token + i) * shape.heads + at.head;
    if (i < of.n) sum += delta_number(call.log_decay, place);
    sums[i] = since[i] = behind[i] = sum;
    beta[i] = i < of.n ? delta_number(call.beta, place) : 0.0f;
  }
  exp_delta_row(since, kDeltaTokens);
  decay_delta_row(behind, sum, kDeltaTokens);
  passed = since[of.n - 1];
  for (int64_t a = 0; a < width; ++a)
    multiply_delta_row(k + a * kDeltaTokens, behind, k_kept + a * kDeltaTokens, kDeltaTokens);
  const DeltaProduct pairs{.a = {k, 1, kDeltaTokens},
                           .b = {k, kDeltaTokens},
                           .y = {blocked, kDeltaTokens},
                           .m = of.n,
                           .n = kDeltaTokens,
                           .k = width};
  delta_product(pairs);
  DeltaProduct read = pairs;
  read.a.a = q, read.y.x = scores;
  delta_product(read);
  for (int64_t i = 0; i < of.n; ++i) {
    float* const decay = decays + i * kDeltaTokens;
    std::copy_n(sums, kDeltaTokens, decay);
    decay_delta_row(decay, sums[i], kDeltaTokens);
    std::fill(decay + i + 1, decay + kDeltaTokens, 0.0f);
    float *const block = blocked + i * kDeltaTokens, *const score = scores + i * kDeltaTokens;
    multiply_delta_row(block, decay, block, kDeltaTokens);
    multiply_delta_row(score, decay, score, kDeltaTokens);
    scale_delta_row(block, -1.0f, kDeltaTokens);
    block[i] = 0;
  }
}

void DeltaChunk::load_values(const In& v, const DeltaHead& at, float* rows) const {
  const int64_t width = shape.value_dim, padded = columns();
  for (int64_t i = 0; i < span.n; ++i) {
    const int64_t token = at.text * shape.seq + span.first + i;
    float* const y = rows + i * padded;
    convert_span(offset(v, (token * shape.heads + at.head) * width), width, {y, Dtype::f32});
    std::fill(y + width, y + padded, 0.0f);
  }
}

void DeltaChunk::solve(float* state) const {
  const int64_t width = columns();
  const DeltaRows u_rows{u, width};
  if (state != nullptr) {
    // u is the place of k S until it is known.
    delta_product({.a = {k, 1, kDeltaTokens},
                   .b = {state, width},
                   .y = u_rows,
                   .m = span.n,
                   .n = width,
                   .k = shape.key_dim});
    for (int64_t i = 0; i < span.n; ++i) {
      std::fill(row, row + width, -since[i]);
      add_delta_products(u + i * width, row, news + i * width, width);
    }
  }
  for (int64_t first = 0; first < span.n; first += kDeltaSolved) {
    const int64_t end = std::min(span.n, first + kDeltaSolved);
    for (int64_t i = first; i < end; ++i) {
      const bool is_block = i == first;
      // All rows of the block at once, of what was solved before it; then each of the block's own.
      if (is_block && first > 0) {
        delta_product({.a = {blocked + first * kDeltaTokens, kDeltaTokens, 1},
                       .b = u_rows,
                       .y = {news + first * width, width},
                       .m = end - first,
                       .n = width,
                       .k = first,
                       .sum = DeltaSum::added});
      }
      if (!is_block) {
        delta_product({.a = {blocked + i * kDeltaTokens + first, kDeltaTokens, 1},
                       .b = {u + first * width, width},
                       .y = {news + i * width, width},
                       .m = 1,
                       .n = width,
                       .k = i - first,
                       .sum = DeltaSum::added});
      }
      std::copy_n(news + i * width, width, u + i * width);
      scale_delta_row(u + i * width, beta[i], width);
    }
  }
}

void DeltaChunk::pass_on(float* state) const {
  const int64_t width = columns();
  if (span.has_state) scale_delta_row(state, passed, state_elems());
  delta_product({.a = {k_kept, kDeltaTokens, 1},
                 .b = {u, width},
                 .y = {state, width},
                 .m = shape.key_dim,
                 .n = width,
                 .k = span.n,
                 .sum = span.has_state ? DeltaSum::added : DeltaSum::fresh});
}

}  // namespace octet::cpu
