#include <cmath>

#include "backends/cpu/attention/delta_chunk.h"
#include "backends/cpu/elementwise/quantized_matrix.h"

namespace octet::cpu {
namespace {

// Scratch of a thread, for one key head of one text. Rows are of values, transposed matrices
// [., 32].
struct GradWork {
  DeltaChunk chunk;
  float *states, *news;  // before each chunk that has one, of each token
  float *dq, *dk;        // of unit rows, [seq, key_dim]
  float* begins;         // first tokens of chunks, i32
  float* state;          // behind the last chunk that was computed
  float* dstate;         // of the state behind the chunk
  float *dout, *dy, *e;  // rows; dy: of beta N, e: of N
  float *dout_t, *e_t, *u_t;
  float *dscores, *dscores_t, *dblocked, *dblocked_t;  // of q k and of k k
  float *dq_t, *dk_t, *dk_pairs;  // dk_t: as what is read with, dk_pairs: as what is read
  float* line;                    // of the chunk's tokens
  float* unit_rows;               // two of key_dim
  GradWork(DeltaPieces& pieces, const GatedDeltaShape& shape) : chunk(pieces, shape) {
    const int64_t width = chunk.columns(), values = kDeltaTokens * width;
    const int64_t keys = kDeltaTokens * shape.key_dim, pairs = kDeltaTokens * kDeltaTokens;
    states = pieces.take(shape.seq / kDeltaTokens * chunk.state_elems());
    news = pieces.take(shape.seq * width);
    dq = pieces.take(shape.seq * shape.key_dim), dk = pieces.take(shape.seq * shape.key_dim);
    begins = pieces.take(shape.seq);
    state = pieces.take(chunk.state_elems()), dstate = pieces.take(chunk.state_elems());
    dout = pieces.take(values), dy = pieces.take(values), e = pieces.take(values);
    dout_t = pieces.take(values), e_t = pieces.take(values), u_t = pieces.take(values);
    dscores = pieces.take(pairs), dscores_t = pieces.take(pairs);
    dblocked = pieces.take(pairs), dblocked_t = pieces.take(pairs);
    dq_t = pieces.take(keys), dk_t = pieces.take(keys), dk_pairs = pieces.take(keys);
    line = pieces.take(kDeltaTokens);
    unit_rows = pieces.take(2 * round_up(shape.key_dim, kDeltaLanes));
  }
  int32_t* begin(int64_t i) const { return reinterpret_cast<int32_t*>(begins) + i; }
};

// The chunk's products with a state: y [key_dim, 32] = state x, its columns times the factors.
struct StateProduct {
  float* state = nullptr;
  float* x = nullptr;  // transposed
  const float* factors = nullptr;
  float* y = nullptr;
};
void times_state(const DeltaChunk& c, const StateProduct& p) {
  delta_product({.a = {p.state, c.columns(), 1},
                 .b = {p.x, kDeltaTokens},
                 .y = {p.y, kDeltaTokens},
                 .m = c.shape.key_dim,
                 .n = kDeltaTokens,
                 .k = c.shape.value_dim});
  for (int64_t a = 0; a < c.shape.key_dim; ++a) {
    float* const row = p.y + a * kDeltaTokens;
    multiply_delta_row(row, p.factors, row, kDeltaTokens);
  }
}

// y [key_dim, 32] of x, transposed, times pairs [n, 32].
struct PairProduct {
  const float* x = nullptr;
  float* pairs = nullptr;
  float* y = nullptr;
  DeltaSum sum = DeltaSum::added;
};
void times_pairs(const DeltaChunk& c, const PairProduct& p) {
  delta_product({.a = {p.x, kDeltaTokens, 1},
                 .b = {p.pairs, kDeltaTokens},
                 .y = {p.y, kDeltaTokens},
                 .m = c.shape.key_dim,
                 .n = kDeltaTokens,
                 .k = c.span.n,
                 .sum = p.sum});
}

// N of each chunk and the states before; the number of chunks.
int64_t make_again(const GatedDeltaCall& call, const DeltaHead& at, GradWork& w) {
  DeltaChunk& c = w.chunk;
  int64_t n_chunks = 0;
  float* kept = w.states;
  for (int64_t first = 0; first < c.shape.seq; first += c.span.n) {
    *w.begin(n_chunks++) = static_cast<int32_t>(first);
    c.load(call, at, delta_span(c.shape, call, at.text, first));
    c.load_values(call.v, at, c.news);
    c.solve(c.span.has_state ? w.state : nullptr);
    std::copy_n(c.news, c.span.n * c.columns(), w.news + first * c.columns());
    if (c.span.has_state) {
      std::copy_n(w.state, c.state_elems(), kept);
      kept += c.state_elems();
    }
    c.pass_on(w.state);
  }
  return n_chunks;
}

// dy and e from the gradient of U in dy: the triangular system from the last row on.
void solve_back(const DeltaChunk& c, const GradWork& w) {
  const int64_t width = c.columns();
  const auto add = [&](int64_t row, int64_t m, int64_t from, int64_t end) {
    delta_product({.a = {c.blocked + from * kDeltaTokens + row, 1, kDeltaTokens},
                   .b = {w.e + from * width, width},
                   .y = {w.dy + row * width, width},
                   .m = m,
                   .n = width,
                   .k = end - from,
                   .sum = DeltaSum::added});
  };
  for (int64_t first = (c.span.n - 1) / kDeltaSolved * kDeltaSolved; first >= 0;
       first -= kDeltaSolved) {
    const int64_t end = std::min(c.span.n, first + kDeltaSolved);
    if (end < c.span.n) add(first, end - first, end, c.span.n);
    for (int64_t i = end; i-- > first;) {
      if (i + 1 < end) add(i, 1, i + 1, end);
      std::copy_n(w.dy + i * width, width, w.e + i * width);
      scale_delta_row(w.e + i * width, c.beta[i], width);
    }
  }
}

// The gradient of U, in dy: from o, and from the state behind the chunk.
void gradient_of_u(const DeltaChunk& c, const GradWork& w, bool has_dstate) {
  const int64_t width = c.columns();
  delta_product({.a = {c.scores, 1, kDeltaTokens},
                 .b = {w.dout, width},
                 .y = {w.dy, width},
                 .m = c.span.n,
                 .n = width,
                 .k = c.span.n});
  if (!has_dstate) return;
  delta_product({.a = {c.k_kept, 1, kDeltaTokens},
                 .b = {w.dstate, width},
                 .y = {w.dy, width},
                 .m = c.span.n,
                 .n = width,
                 .k = c.shape.key_dim,
                 .sum = DeltaSum::added});
}

// Gradients of q k, and of k k, of the chunk's pairs of tokens, and their transposes.
void gradients_of_pairs(const DeltaChunk& c, const GradWork& w) {
  const auto pairs = [&](const float* rows, float* y) {
    delta_product({.a = {rows, c.columns(), 1},
                   .b = {w.u_t, kDeltaTokens},
                   .y = {y, kDeltaTokens},
                   .m = c.span.n,
                   .n = kDeltaTokens,
                   .k = c.shape.value_dim});
    for (int64_t i = 0; i < c.span.n; ++i) {
      float* const row = y + i * kDeltaTokens;
      multiply_delta_row(row, c.decays + i * kDeltaTokens, row, kDeltaTokens);
    }
  };
  pairs(w.dout, w.dscores);
  pairs(w.e, w.dblocked);
  for (int64_t i = 0; i < c.span.n; ++i) {
    scale_delta_row(w.dblocked + i * kDeltaTokens, -1.0f, kDeltaTokens);
    w.dblocked[i * kDeltaTokens + i] = 0;
  }
  transpose_delta(w.dscores, c.span, kDeltaTokens, w.dscores_t);
  transpose_delta(w.dblocked, c.span, kDeltaTokens, w.dblocked_t);
}

// The sum over all places of x y, of rows of n.
float dot_all(const DeltaRows& x, const float* y, int64_t n_rows) {
  float sum = 0;
  for (int64_t i = 0; i < n_rows; ++i)
    sum += dot_delta_rows(x.x + i * x.stride, y + i * x.stride, x.stride);
  return sum;
}

// Gradients of the chunk's unit q and k, and of what its log decays add up to, in `line`.
void gradients_of_keys(const DeltaChunk& c, const GradWork& w, float* state, bool has_dstate) {
  const int64_t keys = c.shape.key_dim;
  float* const line = w.line;
  float of_last = 0;
  const DeltaSum behind_state = c.span.has_state ? DeltaSum::added : DeltaSum::fresh;
  if (c.span.has_state) {
    times_state(c, {state, w.dout_t, c.since, w.dq_t});
    times_state(c, {state, w.e_t, c.since, w.dk_t});
    for (int64_t a = 0; a < keys; ++a)
      scale_delta_row(w.dk_t + a * kDeltaTokens, -1.0f, kDeltaTokens);
  }
  times_pairs(c, {c.k, w.dscores_t, w.dq_t, behind_state});
  times_pairs(c, {c.k, w.dblocked_t, w.dk_t, behind_state});
  if (has_dstate) {
    times_state(c, {w.dstate, w.u_t, c.behind, w.dk_pairs});
    of_last = dot_all({w.dk_pairs, kDeltaTokens}, c.k, keys);
    if (c.span.has_state) of_last += c.passed * dot_all({w.dstate, c.columns()}, state, keys);
  }
  times_pairs(c, {c.q, w.dscores, w.dk_pairs, has_dstate ? DeltaSum::added : DeltaSum::fresh});
  times_pairs(c, {c.k, w.dblocked, w.dk_pairs});
  std::fill(line, line + kDeltaTokens, 0.0f);
  for (int64_t a = 0; a < keys; ++a) {
    const int64_t at = a * kDeltaTokens;
    add_delta_products(c.q + at, w.dq_t + at, line, kDeltaTokens);
    add_delta_products(c.k + at, w.dk_t + at, line, kDeltaTokens);
    scale_delta_row(w.dk_pairs + at, -1.0f, kDeltaTokens);
    add_delta_products(c.k + at, w.dk_pairs + at, line, kDeltaTokens);
  }
  line[c.span.n - 1] += of_last;
}

// Adds the chunk's gradients of unit q and k to those of its tokens; puts those of decays and beta.
void put_tokens(const GatedDeltaGradCall& call, const DeltaHead& at, const GradWork& w) {
  const DeltaChunk& c = w.chunk;
  const int64_t width = c.columns(), keys = c.shape.key_dim;
  float of_later = 0;
  for (int64_t i = c.span.n; i-- > 0;) {
    const int64_t token = at.text * c.shape.seq + c.span.first + i;
    const int64_t place = token * c.shape.heads + at.head;
    of_later += w.line[i];
    put_delta_number(call.dlog_decay, place, of_later);
    put_delta_number(call.dbeta, place,
                     dot_delta_rows(w.dy + i * width, c.news + i * width, width));
    convert_span({w.e + i * width, Dtype::f32}, c.shape.value_dim,
                 offset(call.dv, place * c.shape.value_dim));
    float *const dq = w.dq + (c.span.first + i) * keys, *const dk =
                                                            w.dk + (c.span.first + i) * keys;
    for (int64_t a = 0; a < keys; ++a) {
      dq[a] += w.dq_t[a * kDeltaTokens + i];
      dk[a] += w.dk_t[a * kDeltaTokens + i] - w.dk_pairs[a * kDeltaTokens + i];
    }
  }
}

// The gradient of the state before the chunk, in the place of that of the one behind.
void pass_back(const DeltaChunk& c, const GradWork& w, bool has_dstate) {
  if (!c.span.has_state) return;
  const int64_t width = c.columns();
  if (has_dstate) scale_delta_row(w.dstate, c.passed, c.state_elems());
  const auto add = [&](float* x, float* rows, DeltaSum sum) {
    for (int64_t a = 0; a < c.shape.key_dim; ++a)
      multiply_delta_row(x + a * kDeltaTokens, c.since, w.dq_t + a * kDeltaTokens, kDeltaTokens);
    delta_product({.a = {w.dq_t, kDeltaTokens, 1},
                   .b = {rows, width},
                   .y = {w.dstate, width},
                   .m = c.shape.key_dim,
                   .n = width,
                   .k = c.span.n,
                   .sum = sum});
  };
  scale_delta_row(w.e, -1.0f, c.span.n * width);
  add(c.q, w.dout, has_dstate ? DeltaSum::added : DeltaSum::fresh);
  add(c.k, w.e, DeltaSum::added);
}

void backward_chunk(const GatedDeltaGradCall& call, const DeltaHead& at, GradWork& w, float* state,
                    bool has_dstate) {
  DeltaChunk& c = w.chunk;
  const int64_t width = c.columns();
  std::copy_n(w.news + c.span.first * width, c.span.n * width, c.news);
  for (int64_t i = 0; i < c.span.n; ++i) {
    std::copy_n(c.news + i * width, width, c.u + i * width);
    scale_delta_row(c.u + i * width, c.beta[i], width);
  }
  c.load_values(call.dout, at, w.dout);
  gradient_of_u(c, w, has_dstate);
  solve_back(c, w);
  transpose_delta(w.dout, c.span, c.shape.value_dim, w.dout_t);
  transpose_delta(w.e, c.span, c.shape.value_dim, w.e_t);
  transpose_delta(c.u, c.span, c.shape.value_dim, w.u_t);
  gradients_of_pairs(c, w);
  gradients_of_keys(c, w, state, has_dstate);
  put_tokens(call, at, w);
  pass_back(c, w, has_dstate);
}

void backward_head(const GatedDeltaGradCall& call, const DeltaHead& at, GradWork& w) {
  DeltaChunk& c = w.chunk;
  const int64_t n_chunks = make_again(call.forward, at, w);
  float* state = w.states;
  for (int64_t i = 0; i < n_chunks; ++i) {
    const DeltaSpan span = delta_span(c.shape, call.forward, at.text, *w.begin(i));
    if (span.has_state) state += c.state_elems();
  }
  bool has_dstate = false;
  for (int64_t i = n_chunks; i-- > 0;) {
    c.load(call.forward, at, delta_span(c.shape, call.forward, at.text, *w.begin(i)));
    if (c.span.has_state) state -= c.state_elems();
    backward_chunk(call, at, w, c.span.has_state ? state : nullptr, has_dstate);
    has_dstate = c.span.has_state;
  }
}

// Gradients of the rows x of a key head from those of its unit rows y = length x / |x|: without
// what goes along x.
struct UnitRows {
  In x = {};
  const float* dy = nullptr;
  Out dx = {};
  float length = 1;
};
void put_unit_gradients(const GatedDeltaShape& shape, const DeltaHead& key, const UnitRows& rows,
                        float* line) {
  const int64_t width = shape.key_dim, padded = round_up(width, kDeltaLanes);
  float *const x = line, *const dy = line + padded;
  std::fill(line, line + 2 * padded, 0.0f);
  for (int64_t t = 0; t < shape.seq; ++t) {
    const int64_t at = ((key.text * shape.seq + t) * shape.key_heads + key.head) * width;
    convert_span(offset(rows.x, at), width, {x, Dtype::f32});
    std::copy_n(rows.dy + t * width, width, dy);
    const float inverse = inverse_length(x, padded);
    const float along = dot_delta_rows(x, dy, padded) * inverse * inverse;
    for (int64_t a = 0; a < width; ++a) dy[a] = (dy[a] - x[a] * along) * (inverse * rows.length);
    convert_span({dy, Dtype::f32}, width, offset(rows.dx, at));
  }
}

// All value heads of a key head, one after the other.
void backward_key_head(const GatedDeltaGradCall& call, const DeltaHead& key, GradWork& w) {
  const GatedDeltaShape& shape = w.chunk.shape;
  const int64_t n = shape.seq * shape.key_dim, group = shape.heads / shape.key_heads;
  std::fill(w.dq, w.dq + n, 0.0f);
  std::fill(w.dk, w.dk + n, 0.0f);
  for (int64_t i = 0; i < group; ++i) backward_head(call, {key.text, key.head * group + i}, w);
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  put_unit_gradients(shape, key, {call.forward.q, w.dq, call.dq, scale}, w.unit_rows);
  put_unit_gradients(shape, key, {call.forward.k, w.dk, call.dk, 1.0f}, w.unit_rows);
}

int64_t gradient_floats(const GatedDeltaShape& shape) {
  DeltaPieces count(nullptr);
  const GradWork sized(count, shape);
  return count.used();
}

}  // namespace

int64_t gated_delta_grad_floats(const GatedDeltaShape& shape, int n_threads) {
  return n_threads * gradient_floats(shape);
}

void gated_delta_gradient(const GatedDeltaShape& shape, const GatedDeltaGradCall& call,
                          ThreadPool& pool) {
  const int64_t n_each = gradient_floats(shape);
  for_tiles(pool, shape.batch * shape.key_heads, [&](int64_t pair, int thread) {
    DeltaPieces pieces(call.forward.scratch + thread * n_each);
    GradWork work(pieces, shape);
    backward_key_head(call, {pair / shape.key_heads, pair % shape.key_heads}, work);
  });
}

}  // namespace octet::cpu
