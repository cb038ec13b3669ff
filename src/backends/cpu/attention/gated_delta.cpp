#include "backends/cpu/attention/gated_delta.h"

#include "backends/cpu/attention/delta_chunk.h"
#include "backends/cpu/elementwise/quantized_matrix.h"

namespace octet::cpu {
namespace {

struct DeltaWork {
  DeltaWork(DeltaPieces& pieces, const GatedDeltaShape& shape)
      : chunk(pieces, shape), state(pieces.take(chunk.state_elems())) {}
  DeltaChunk chunk;
  float* state;
};

// A state's rows between their storage, value_dim wide, and the scratch.
void read_state(const In& from, int64_t pair, const DeltaWork& w) {
  const int64_t width = w.chunk.shape.value_dim, padded = w.chunk.columns();
  for (int64_t a = 0; a < w.chunk.shape.key_dim; ++a) {
    const In row = offset(from, (pair * w.chunk.shape.key_dim + a) * width);
    convert_span(row, width, {w.state + a * padded, Dtype::f32});
    std::fill(w.state + a * padded + width, w.state + (a + 1) * padded, 0.0f);
  }
}
void write_state(const Out& to, int64_t pair, const DeltaWork& w) {
  const int64_t width = w.chunk.shape.value_dim, padded = w.chunk.columns();
  for (int64_t a = 0; a < w.chunk.shape.key_dim; ++a) {
    const Out row = offset(to, (pair * w.chunk.shape.key_dim + a) * width);
    convert_span({w.state + a * padded, Dtype::f32}, width, row);
  }
}

// o of a chunk that is solved; N's rows, which are read no more, are their place.
void read_chunk(const GatedDeltaCall& call, const DeltaHead& at, const DeltaWork& w) {
  const DeltaChunk& c = w.chunk;
  const int64_t width = c.columns();
  float* const o = c.news;
  if (c.span.has_state) {
    delta_product({.a = {c.q, 1, kDeltaTokens},
                   .b = {w.state, width},
                   .y = {o, width},
                   .m = c.span.n,
                   .n = width,
                   .k = c.shape.key_dim});
    for (int64_t i = 0; i < c.span.n; ++i) scale_delta_row(o + i * width, c.since[i], width);
  }
  delta_product({.a = {c.scores, kDeltaTokens, 1},
                 .b = {c.u, width},
                 .y = {o, width},
                 .m = c.span.n,
                 .n = width,
                 .k = c.span.n,
                 .sum = c.span.has_state ? DeltaSum::added : DeltaSum::fresh});
  for (int64_t i = 0; i < c.span.n; ++i) {
    const int64_t token = at.text * c.shape.seq + c.span.first + i;
    convert_span({o + i * width, Dtype::f32}, c.shape.value_dim,
                 offset(call.o, (token * c.shape.heads + at.head) * c.shape.value_dim));
  }
}

void forward_head(const GatedDeltaCall& call, const DeltaHead& at, DeltaWork& w) {
  DeltaChunk& c = w.chunk;
  const int64_t pair = at.text * c.shape.heads + at.head;
  if (call.state) read_state(call.state, pair, w);
  for (int64_t first = 0; first < c.shape.seq; first += c.span.n) {
    c.load(call, at, delta_span(c.shape, call, at.text, first));
    c.load_values(call.v, at, c.news);
    c.solve(c.span.has_state ? w.state : nullptr);
    read_chunk(call, at, w);
    const bool is_last = first + c.span.n == c.shape.seq;
    if (!is_last || call.next_state) c.pass_on(w.state);
  }
  if (call.next_state) write_state(call.next_state, pair, w);
}

int64_t forward_floats(const GatedDeltaShape& shape) {
  DeltaPieces count(nullptr);
  const DeltaWork sized(count, shape);
  return count.used();
}

}  // namespace

int64_t gated_delta_floats(const GatedDeltaShape& shape, int n_threads) {
  return n_threads * forward_floats(shape);
}

void gated_delta(const GatedDeltaShape& shape, const GatedDeltaCall& call, ThreadPool& pool) {
  const int64_t n_each = forward_floats(shape);
  for_tiles(pool, shape.batch * shape.heads, [&](int64_t pair, int thread) {
    DeltaPieces pieces(call.scratch + thread * n_each);
    DeltaWork work(pieces, shape);
    forward_head(call, {pair / shape.heads, pair % shape.heads}, work);
  });
}

}  // namespace octet::cpu
