#include <cstring>
#include <limits>

#include "backends/cpu/attention/attention_rows.h"
#include "backends/cpu/elementwise/quantized_matrix.h"
#include "base/error.h"

namespace octet::cpu {
namespace {

constexpr int64_t kLongSequence = 256, kLongBlock = 128, kShortBlock = 64;

// Hands out pieces of a thread's scratch, each aligned to 64 bytes; with a null base it only
// counts.
class Pieces {
 public:
  explicit Pieces(char* base) : base_(base) {}
  template <typename T>
  T* take(int64_t bytes) {
    T* const piece = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += round_up(bytes, 64);
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

// One thread's scratch for one kv head of one sequence. Transposed scores [keys, queries] make dV
// and dK plain products.
struct Work {
  char *k_rows, *v_rows, *k_panels;  // whole sequence: a operands of S^T and dP^T, b operand of dQ
  float *dk, *dv;                    // [keys, columns]
  char *q_t, *dout_t, *q, *dout;     // panels of one block of queries
  float *s, *dp;                     // [k_block, q_block]
  char *p, *ds, *ds_t;               // rounded to the products' type
  float *dq, *d, *lse;
  char* product;

  Work(Pieces& take, const AttentionShape& x, int64_t product_bytes) {
    const int64_t elem = x.elem(), keys = x.n_k_blocks() * x.k_block;
    k_rows = take.take<char>(keys * x.depth * elem);
    v_rows = take.take<char>(keys * x.depth * elem);
    k_panels = take.take<char>(keys * x.columns * elem);
    dk = take.take<float>(keys * x.columns * 4);
    dv = take.take<float>(keys * x.columns * 4);
    q_t = take.take<char>(x.q_block * x.depth * elem);
    dout_t = take.take<char>(x.q_block * x.depth * elem);
    q = take.take<char>(x.q_block * x.columns * elem);
    dout = take.take<char>(x.q_block * x.columns * elem);
    const int64_t scores = x.k_block * x.q_block;
    s = take.take<float>(scores * 4);
    dp = take.take<float>(scores * 4);
    p = take.take<char>(scores * elem);
    ds = take.take<char>(scores * elem);
    ds_t = take.take<char>(scores * elem);
    dq = take.take<float>(x.q_block * x.columns * 4);
    d = take.take<float>(x.q_block * 4);
    lse = take.take<float>(x.q_block * 4);
    product = take.take<char>(product_bytes);
  }
};

struct ThreadWork {
  int thread = 0;
  const Work& w;
};

// A block of a head's queries of a span, from q0 on, against one of its keys, from key0 on.
struct QueriesAndKeys {
  const AttentionSpan& span;
  int64_t head = 0, q0 = 0, rows = 0, key0 = 0, keys = 0;
};

}  // namespace

struct AttentionBackward::State {
  AttentionShape shape;
  std::unique_ptr<TileGemm> scores, key_sum, query_sum;
  int64_t product_bytes = 0, thread_bytes = 0;
  int64_t sum_bytes = 0;  // of the bias's gradient in f32, where it is of another type
  int n_threads = 1;

  void load_keys(const AttentionBackwardArgs& args, const AttentionSpan& span, int64_t kv_head,
                 const Work& w) const;
  void load_queries(const AttentionBackwardArgs& args, int64_t q_row, int64_t head, int64_t rows,
                    const Work& w) const;
  void add_bias(const AttentionBackwardArgs& args, const QueriesAndKeys& at, float* s) const;
  void hide_unseen(const QueriesAndKeys& at, float* s) const;
  void add_bias_gradient(const AttentionBackwardArgs& args, const QueriesAndKeys& at,
                         const float* unscaled) const;
  void block(const AttentionBackwardArgs& args, const QueriesAndKeys& at,
             const ThreadWork& work) const;
  void part(const AttentionBackwardArgs& args, const AttentionSpan& span, int64_t kv_head,
            const ThreadWork& work) const;
  void clear_keys(const AttentionBackwardArgs& args, int64_t first_row, int64_t end_row,
                  int64_t kv_head) const;
  void tile(const AttentionBackwardArgs& args, int64_t pair, int thread) const;
  int64_t n_tasks() const;
  void task(const AttentionBackwardArgs& args, int64_t index, int thread) const;
  float* bias_sums(const AttentionBackwardArgs& args) const;
};

AttentionBackward::AttentionBackward(const AttentionSpec& spec, int n_threads)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.shape = checked_shape(spec);
  s.n_threads = n_threads;
  if (spec.batch == 0) return;
  AttentionShape& x = s.shape;
  x.q_block = spec.q_len >= kLongSequence ? kLongBlock : kShortBlock;
  x.k_block = spec.kv_len >= kLongSequence ? kLongBlock : kShortBlock;
  const auto make = [&](int64_t m, int64_t n, int64_t k, bool accumulate) {
    auto product = std::make_unique<TileGemm>(TileShape{m, n, k, x.compute, accumulate}, n_threads);
    s.product_bytes = std::max(s.product_bytes, static_cast<int64_t>(product->scratch_bytes()));
    return product;
  };
  s.scores = make(x.k_block, x.q_block, x.depth, false);
  s.key_sum = make(x.k_block, x.columns, x.q_block, true);
  s.query_sum = make(x.q_block, x.columns, x.k_block, true);
  Pieces count(nullptr);
  const Work sized(count, x, s.product_bytes);
  s.thread_bytes = count.used();
  if (!spec.bias || spec.bias->gradient == BiasGradient::no) return;
  const AttentionBias& bias = *spec.bias;
  if (bias.dtype != Dtype::f32)
    s.sum_bytes = 4 * bias.batch * bias.heads * bias.q_len * spec.kv_len;
}

size_t AttentionBackward::scratch_bytes() const {
  const State& s = *state_;
  return static_cast<size_t>(s.n_threads * s.thread_bytes + s.sum_bytes);
}

void AttentionBackward::State::load_keys(const AttentionBackwardArgs& args,
                                         const AttentionSpan& span, int64_t kv_head,
                                         const Work& w) const {
  const AttentionSpec& spec = shape.spec;
  const int64_t row = span.kv_row, n_blocks = shape.n_k_blocks(span);
  const int64_t padded = n_blocks * shape.k_block, row_bytes = shape.depth * shape.elem();
  const MatrixIn k{shape.key(args.k, row, kv_head), shape.k_stride(), Transpose::no};
  const MatrixIn v{shape.key(args.v, row, kv_head), shape.k_stride(), Transpose::no};
  const RowRange all{0, span.kv_len, spec.head_size, shape.depth};
  pack_rows(k, all, {w.k_rows, shape.compute});
  pack_rows(v, all, {w.v_rows, shape.compute});
  std::fill(w.k_rows + span.kv_len * row_bytes, w.k_rows + padded * row_bytes, 0);
  std::fill(w.v_rows + span.kv_len * row_bytes, w.v_rows + padded * row_bytes, 0);
  for (int64_t j = 0; j < n_blocks; ++j) {
    const int64_t first = j * shape.k_block;
    pack_operand({shape.key(args.k, row + first, kv_head), shape.k_stride(), Transpose::no},
                 *query_sum, {std::min(shape.k_block, span.kv_len - first), spec.head_size},
                 w.k_panels + first * shape.columns * shape.elem());
  }
  std::fill(w.dk, w.dk + padded * shape.columns, 0.0f);
  std::fill(w.dv, w.dv + padded * shape.columns, 0.0f);
}

void AttentionBackward::State::load_queries(const AttentionBackwardArgs& args, int64_t q_row,
                                            int64_t head, int64_t rows, const Work& w) const {
  const AttentionSpec& spec = shape.spec;
  MatrixIn q{shape.query(args.q, q_row, head), shape.q_stride(), Transpose::no};
  MatrixIn dout{shape.query(args.dout, q_row, head), shape.q_stride(), Transpose::no};
  pack_operand(q, *key_sum, {rows, spec.head_size}, w.q);
  pack_operand(dout, *key_sum, {rows, spec.head_size}, w.dout);
  q.transpose = dout.transpose = Transpose::yes;
  pack_operand(q, *scores, {spec.head_size, rows}, w.q_t);
  pack_operand(dout, *scores, {spec.head_size, rows}, w.dout_t);
  for (int64_t r = 0; r < rows; ++r) {
    w.d[r] = dot_row(shape.query(args.dout, q_row + r, head), shape.query(args.o, q_row + r, head),
                     spec.head_size);
  }
  const int64_t sequence = q_row / spec.q_len, first = q_row % spec.q_len;
  const float* const lse = args.lse + (sequence * spec.heads + head) * spec.q_len + first;
  // A query that sees no key would have exp(-Inf + Inf), which is hidden.
  std::transform(lse, lse + rows, w.lse,
                 [](float x) { return x == -std::numeric_limits<float>::infinity() ? 0.0f : x; });
  std::fill(w.dq, w.dq + shape.q_block * shape.columns, 0.0f);
}

// The bias, added to transposed scores.
void AttentionBackward::State::add_bias(const AttentionBackwardArgs& args, const QueriesAndKeys& at,
                                        float* s) const {
  float bias[kLongBlock];
  for (int64_t r = 0; r < at.rows; ++r) {
    const In row = shape.bias_row(args.bias, at.span.q_row + at.q0 + r, at.head);
    convert_span(offset(row, at.span.first_key + at.key0), at.keys, {bias, Dtype::f32});
    for (int64_t key = 0; key < at.keys; ++key) {
      float& score = s[key * shape.q_block + r];
      score = shape.spec.scale * score + bias[key];
    }
  }
}

// Minus infinity in transposed scores where a query's range leaves a key out.
void AttentionBackward::State::hide_unseen(const QueriesAndKeys& at, float* s) const {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < at.rows; ++r) {
    const KeyRange seen = shape.seen(at.span, at.q0 + r);
    for (int64_t key = 0; key < at.keys; ++key) {
      const bool is_seen = at.key0 + key >= seen.first && at.key0 + key < seen.end;
      if (!is_seen) s[key * shape.q_block + r] = kLowest;
    }
  }
}

void AttentionBackward::State::add_bias_gradient(const AttentionBackwardArgs& args,
                                                 const QueriesAndKeys& at,
                                                 const float* unscaled) const {
  for (int64_t r = 0; r < at.rows; ++r) {
    float* const sums = bias_sums(args) + at.span.first_key + at.key0 +
                        shape.bias_at(at.span.q_row + at.q0 + r, at.head);
    for (int64_t key = 0; key < at.keys; ++key) sums[key] += unscaled[key * shape.q_block + r];
  }
}

// Adds what one block of queries and one block of keys give to dq, dk and dv.
void AttentionBackward::State::block(const AttentionBackwardArgs& args, const QueriesAndKeys& at,
                                     const ThreadWork& work) const {
  const AttentionSpec& spec = shape.spec;
  const auto& [thread, w] = work;
  const int64_t width = shape.q_block, elem = shape.elem();
  const int64_t keys_at = at.key0 * shape.depth * elem;
  scores->run(thread, {w.k_rows + keys_at, w.q_t, w.s, w.product});
  scores->run(thread, {w.v_rows + keys_at, w.dout_t, w.dp, w.product});
  if (spec.bias) add_bias(args, at, w.s);
  if (spec.softcap > 0) cap_row({w.s, width * shape.k_block, spec.scale, spec.softcap});
  if (at.span.has_ranges()) hide_unseen(at, w.s);
  const bool is_causal = spec.mask == AttentionMask::causal;
  const bool wants_bias = spec.bias && spec.bias->gradient == BiasGradient::yes;
  for (int64_t key = 0; key < shape.k_block; ++key) {
    const int64_t own = at.key0 + key - at.span.shift - at.q0;  // the query at the key's place
    // The first query that sees this key; the keys beyond the span are seen by none.
    int64_t first = is_causal ? own : spec.window > 0 ? own - spec.window + 1 : 0;
    if (key >= at.keys) first = at.rows;
    // With a window the last ones see it no more.
    const int64_t end = spec.window > 0 ? own + spec.window : at.rows;
    const Out p{w.p + key * width * elem, shape.compute};
    const Out ds{w.ds + key * width * elem, shape.compute};
    softmax_gradient_row({.s = w.s + key * width,
                          .dp = w.dp + key * width,
                          .lse = w.lse,
                          .d = w.d,
                          .p = p,
                          .ds = ds,
                          .first = std::clamp<int64_t>(first, 0, at.rows),
                          .last = std::clamp<int64_t>(end, 0, at.rows),
                          .width = width,
                          .score_scale = shape.score_scale(),
                          .scale = spec.scale,
                          .unscaled = wants_bias ? w.dp + key * width : nullptr,
                          .inv_cap = spec.softcap > 0 ? 1 / spec.softcap : 0});
  }
  if (wants_bias) add_bias_gradient(args, at, w.dp);
  transpose_block(
      {w.ds, w.ds_t, width, shape.k_block, shape.k_block, width, static_cast<int>(elem)});
  const int64_t sums = at.key0 * shape.columns;
  key_sum->run(thread, {w.p, w.dout, w.dv + sums, w.product});
  key_sum->run(thread, {w.ds, w.q, w.dk + sums, w.product});
  query_sum->run(thread, {w.ds_t, w.k_panels + sums * elem, w.dq, w.product});
}

void AttentionBackward::State::part(const AttentionBackwardArgs& args, const AttentionSpan& span,
                                    int64_t kv_head, const ThreadWork& work) const {
  const AttentionSpec& spec = shape.spec;
  const Work& w = work.w;
  load_keys(args, span, kv_head, w);
  for (int64_t member = 0; member < shape.group(); ++member) {
    const int64_t head = kv_head * shape.group() + member;
    for (int64_t q0 = 0; q0 < span.q_len; q0 += shape.q_block) {
      const int64_t rows = std::min(shape.q_block, span.q_len - q0);
      const int64_t q_row = span.q_row + q0;
      load_queries(args, q_row, head, rows, w);
      const KeyRange blocks = shape.blocks(span, q0, q0 + rows);
      for (int64_t j = blocks.first; j < blocks.end; ++j) {
        const int64_t key0 = j * shape.k_block;
        const int64_t keys = std::min(shape.k_block, span.kv_len - key0);
        block(args, {span, head, q0, rows, key0, keys}, work);
      }
      for (int64_t r = 0; r < rows; ++r) {
        scale_row(w.dq + r * shape.columns, shape.query(args.dq, q_row + r, head), 1.0f,
                  spec.head_size);
      }
    }
  }
  for (int64_t key = 0; key < span.kv_len; ++key) {
    const int64_t row = span.kv_row + key, at = key * shape.columns;
    scale_row(w.dk + at, shape.key(args.dk, row, kv_head), 1.0f, spec.head_size);
    scale_row(w.dv + at, shape.key(args.dv, row, kv_head), 1.0f, spec.head_size);
  }
}

// Zero dk and dv of keys that no query sees.
void AttentionBackward::State::clear_keys(const AttentionBackwardArgs& args, int64_t first_row,
                                          int64_t end_row, int64_t kv_head) const {
  const AttentionSpec& spec = shape.spec;
  const auto n_bytes = static_cast<size_t>(bytes_of(spec.dtype, spec.head_size));
  for (int64_t row = first_row; row < end_row; ++row) {
    std::memset(shape.key(args.dk, row, kv_head).data, 0, n_bytes);
    std::memset(shape.key(args.dv, row, kv_head).data, 0, n_bytes);
  }
}

void AttentionBackward::State::tile(const AttentionBackwardArgs& args, int64_t pair,
                                    int thread) const {
  const AttentionSpec& spec = shape.spec;
  Pieces pieces(static_cast<char*>(args.scratch) + sum_bytes + thread * thread_bytes);
  const Work w(pieces, shape, product_bytes);
  const int64_t kv_head = pair % spec.kv_heads;
  const AttentionSpan sequence = shape.sequence(args, pair / spec.kv_heads);
  int64_t next_key = sequence.kv_row;
  for (int64_t row = 0; row < spec.q_len;) {
    const AttentionSpan span = shape.part(sequence, row);
    if (span.kv_len > 0) {
      clear_keys(args, next_key, span.kv_row, kv_head);
      next_key = span.kv_row + span.kv_len;
    }
    part(args, span, kv_head, {thread, w});
    row += span.q_len;
  }
  clear_keys(args, next_key, sequence.kv_row + spec.kv_len, kv_head);
}

// Sums of the bias's gradient.
float* AttentionBackward::State::bias_sums(const AttentionBackwardArgs& args) const {
  return static_cast<float*>(sum_bytes > 0 ? args.scratch : args.dbias);
}

// Kv heads of sequences, of which those that add to the same of a bias are one task.
int64_t AttentionBackward::State::n_tasks() const {
  const AttentionSpec& spec = shape.spec;
  if (!spec.bias || spec.bias->gradient == BiasGradient::no) return shape.pairs();
  return spec.bias->batch * (spec.bias->heads == 1 ? 1 : spec.kv_heads);
}

void AttentionBackward::State::task(const AttentionBackwardArgs& args, int64_t index,
                                    int thread) const {
  const AttentionSpec& spec = shape.spec;
  if (!spec.bias || spec.bias->gradient == BiasGradient::no) return tile(args, index, thread);
  const AttentionBias& bias = *spec.bias;
  const int64_t n_groups = bias.heads == 1 ? 1 : spec.kv_heads;
  const int64_t n = bias.heads / n_groups * bias.q_len * spec.kv_len, first = index * n;
  float* const sums = bias_sums(args) + first;
  std::fill(sums, sums + n, 0.0f);
  const int64_t entry = index / n_groups, group = index % n_groups;
  for (int64_t b = 0; b < spec.batch; ++b) {
    if (bias.batch > 1 && b != entry) continue;
    for (int64_t kv_head = 0; kv_head < spec.kv_heads; ++kv_head) {
      if (n_groups == 1 || kv_head == group) tile(args, b * spec.kv_heads + kv_head, thread);
    }
  }
  if (sum_bytes > 0) scale_row(sums, offset(Out{args.dbias, bias.dtype}, first), 1.0f, n);
}

void AttentionBackward::launch(const AttentionBackwardArgs& args, ThreadPool& pool) const {
  const State& s = *state_;
  const AttentionSpec& spec = s.shape.spec;
  CHECK(pool.n_threads() <= s.n_threads);
  if (spec.batch == 0) return;
  CHECK(spec.bias.has_value() == (args.bias != nullptr));
  for_tiles(pool, s.n_tasks(), [&](int64_t i, int thread) { s.task(args, i, thread); });
}

}  // namespace octet::cpu
