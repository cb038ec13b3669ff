#include "ir/ops/gated_delta_steps.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace octet::ops {
namespace {

constexpr double kLengthEps = 1e-6;

// Batch B, heads H of values, n chunks of c tokens, P = B H, M = P n.
class DeltaRule {
 public:
  DeltaRule(Builder& b, const GatedDeltaAttrs& attrs, const DeltaOperands& x)
      : b_(b),
        batch_(attrs.batch),
        seq_(b.shape(x.q)[0] / attrs.batch),
        key_heads_(attrs.key_heads),
        heads_(b.shape(x.log_decay)[1]),
        key_dim_(b.shape(x.q)[1] / key_heads_),
        value_dim_(b.shape(x.v)[1] / heads_) {
    chunk_ = std::min<int64_t>(kDeltaChunk, std::bit_ceil(static_cast<uint64_t>(seq_)));
    chunks_ = (seq_ + chunk_ - 1) / chunk_;
    rows_ = batch_ * heads_;
  }

  Values run(const DeltaOperands& given) {
    read_documents(given.doc_starts);
    const bool has_state = given.state != kNoValue;
    if (has_state) state_ = b_.reshape(given.state, {rows_, key_dim_, value_dim_});
    const double scale = 1 / std::sqrt(static_cast<double>(key_dim_));
    const Chunks x = {.q = keys(given.q, scale),
                      .k = keys(given.k, 1),
                      .v = chunked(heads(given.v, heads_, value_dim_), value_dim_),
                      .log_decay = numbers(given.log_decay),
                      .beta = numbers(given.beta)};
    const ValueId o = text_rows(has_state && seq_ == 1 ? of_one_token(x) : of_chunks(x));
    if (!has_state) return {o};
    return {o, b_.reshape(state_, {batch_, heads_, key_dim_, value_dim_})};
  }

 private:
  // [M, c, .] and [M, c].
  struct Chunks {
    ValueId q = kNoValue, k = kNoValue, v = kNoValue, log_decay = kNoValue, beta = kNoValue;
  };
  struct Parts {
    ValueId q = kNoValue, k = kNoValue, v = kNoValue, known = kNoValue, scores = kNoValue,
            decay = kNoValue;
  };

  // Place i of an axis, without the axis.
  ValueId at(ValueId x, int64_t axis, int64_t i) {
    Shape shape = b_.shape(x);
    shape.erase(shape.begin() + axis);
    return b_.reshape(b_.slice(x, axis, i, 1), shape);
  }
  // op(x) op(y) of each chunk, [M, ., .].
  enum class Transposed : uint8_t { none, first, second };
  ValueId product(ValueId x, ValueId y, Transposed which = Transposed::none) {
    const BatchedGemmAttrs attrs{.trans_a = which == Transposed::first,
                                 .trans_b = which == Transposed::second};
    return b_.emit1(OpCode::batched_gemm, attrs, {x, y});
  }
  ValueId product_plus(ValueId x, ValueId y, ValueId addend) {
    return b_.emit1(OpCode::batched_gemm, BatchedGemmAttrs{}, {x, y, addend});
  }
  ValueId times_rows(ValueId x, ValueId factors) {
    return b_.mul(x, b_.broadcast(factors, b_.shape(x), {0, 1}));
  }
  ValueId masked(ValueId x, ValueId mask) { return mask == kNoValue ? x : b_.mul(x, mask); }

  // [B*T, H*d] -> [B, H, T, d]
  ValueId heads(ValueId x, int64_t n, int64_t width) {
    return b_.transpose(b_.reshape(x, {batch_, seq_, n, width}), {0, 2, 1, 3});
  }
  // [B, H, T, d] -> [M, c, d], zeros behind the last token
  ValueId chunked(ValueId x, int64_t width) {
    const int64_t more = chunks_ * chunk_ - seq_;
    if (more > 0) x = b_.concatenate({x, b_.fill({batch_, heads_, more, width}, 0)}, 2);
    return b_.reshape(x, {rows_ * chunks_, chunk_, width});
  }
  // [B*T, H] -> [M, c]
  ValueId numbers(ValueId x) {
    return b_.reshape(chunked(heads(x, heads_, 1), 1), {rows_ * chunks_, chunk_});
  }
  // Of this length, for each head of values.
  ValueId keys(ValueId x, double length) {
    const ValueId apart = heads(x, key_heads_, key_dim_);
    const Shape shape = b_.shape(apart);
    const ValueId squares = b_.reduce_sum(b_.unary(OpCode::square, apart), {3});
    ValueId inverse = b_.unary(OpCode::rsqrt, b_.plus(squares, kLengthEps));
    if (length != 1) inverse = b_.scaled(inverse, length);
    ValueId unit = b_.mul(apart, b_.broadcast(inverse, shape, {0, 1, 2}));
    const int64_t group = heads_ / key_heads_;
    if (group > 1) {
      unit = b_.broadcast(unit, {batch_, key_heads_, group, seq_, key_dim_}, {0, 1, 3, 4});
      unit = b_.reshape(unit, {batch_, heads_, seq_, key_dim_});
    }
    return chunked(unit, key_dim_);
  }

  // 1 where the condition is met.
  ValueId ones_where(ValueId condition) {
    const Shape shape = b_.shape(condition);
    const ValueId one = b_.fill(shape, 1), none = b_.fill(shape, 0);
    return b_.select(condition, one, none);
  }
  // [c, c]: 1 where the column is before the row, or is it.
  ValueId lower() {
    const Shape square{chunk_, chunk_};
    return ones_where(b_.binary(OpCode::less_equal, b_.iota(square, 1), b_.iota(square, 0)));
  }
  Shape squares() const { return {rows_ * chunks_, chunk_, chunk_}; }
  // The same for each chunk, within documents.
  ValueId seen_tokens() { return masked(b_.broadcast(lower(), squares(), {1, 2}), is_same_); }
  // Sums of all places up to each.
  ValueId cumulated(ValueId x) { return b_.gemm(x, lower(), {.trans_b = true}); }
  // What is left at a row's place of a column's before it; 1 above the diagonal.
  ValueId pair_decays(ValueId sums) {
    const ValueId later = b_.broadcast(sums, squares(), {0, 1});
    const ValueId difference = b_.sub(later, b_.transpose(later, {0, 2, 1}));
    return b_.unary(OpCode::exp, b_.minimum(difference, b_.fill_like(difference, 0)));
  }

  // Of I + what x has below the diagonal. X, the inverse of its blocks of s by s along the
  // diagonal, gives that of twice their size: X - X (x's blocks between two of them) X.
  ValueId inverse(ValueId x) {
    const Shape square{chunk_, chunk_};
    const ValueId row = b_.iota(square, 0), column = b_.iota(square, 1);
    const ValueId unit = ones_where(b_.equal(row, column));
    ValueId known = b_.broadcast(unit, squares(), {1, 2});
    for (int64_t size = 1; size < chunk_; size *= 2) {
      const ValueId between = b_.mul(x, b_.broadcast(between_blocks(size), squares(), {1, 2}));
      // Blocks of one number are 1.
      const ValueId more = size == 1 ? between : product(product(known, between), known);
      known = b_.sub(known, more);
    }
    return known;
  }
  // [c, c]: 1 in the rows of every second block of so many, in the columns of the one before.
  ValueId between_blocks(int64_t size) {
    const Shape square{chunk_, chunk_};
    // The number of the block of so many along an axis of rows or columns.
    const auto block_of = [&](int64_t axis, int64_t n) {
      Shape apart = {chunk_ / n, n};
      apart.insert(axis == 0 ? apart.end() : apart.begin(), chunk_);
      return b_.reshape(b_.iota(apart, axis), square);
    };
    const ValueId row_pair = block_of(0, 2 * size), column_pair = block_of(1, 2 * size);
    const ValueId row = block_of(0, size), column = block_of(1, size);
    const ValueId is_pair = ones_where(b_.equal(row_pair, column_pair));
    return b_.mul(is_pair, ones_where(b_.less(column, row)));
  }

  // Masks of isolated documents, each of all heads: two tokens of one chunk are of one document; a
  // token's began before its chunk; a token's is that of the chunk's last; that began before it.
  void read_documents(ValueId given) {
    if (given == kNoValue) return;
    const int64_t padded = chunks_ * chunk_, more = padded - seq_;
    ValueId starts = b_.reshape(given, {batch_, seq_});
    if (more > 0) {
      const ValueId last = b_.broadcast(at(starts, 1, seq_ - 1), {batch_, more}, {0});
      starts = b_.concatenate({starts, last}, 1);
    }
    const Shape rows{batch_, chunks_, chunk_}, square{batch_, chunks_, chunk_, chunk_};
    starts = b_.reshape(starts, rows);
    const ValueId first = at(b_.reshape(b_.iota({batch_, padded}, 1), rows), 2, 0);
    const ValueId last = at(starts, 2, chunk_ - 1);
    const ValueId of_rows = b_.broadcast(starts, square, {0, 1, 2});
    const ValueId of_columns = b_.broadcast(starts, square, {0, 1, 3});
    is_same_ = of_heads(ones_where(b_.equal(of_rows, of_columns)));
    reads_state_ = of_heads(ones_where(b_.less(starts, b_.broadcast(first, rows, {0, 1}))));
    is_kept_ = of_heads(ones_where(b_.equal(starts, b_.broadcast(last, rows, {0, 1}))));
    passes_ = of_heads(ones_where(b_.less(last, first)));
  }
  // [B, n, ...] -> [M, ...]
  ValueId of_heads(ValueId x) {
    Shape shape = b_.shape(x), axes;
    shape.insert(shape.begin() + 1, heads_);
    for (int64_t i = 0; i < std::ssize(shape); ++i) {
      if (i != 1) axes.push_back(i);
    }
    const ValueId all = b_.broadcast(x, shape, axes);
    shape.erase(shape.begin(), shape.begin() + 2);
    shape[0] = rows_ * chunks_;
    return b_.reshape(all, shape);
  }

  // As the rule is written.
  ValueId of_one_token(const Chunks& x) {
    const ValueId decay = b_.unary(OpCode::exp, b_.reshape(x.log_decay, {rows_}));
    const ValueId left = b_.mul(state_, b_.broadcast(decay, b_.shape(state_), {0}));
    const ValueId news = times_rows(b_.sub(x.v, product(x.k, left)), x.beta);
    state_ = b_.add(left, product(x.k, news, Transposed::first));
    return product(x.q, state_);
  }

  // y [M, c, value_dim]; state_ becomes the one behind the last chunk, where there was one.
  ValueId of_chunks(const Chunks& x) {
    const ValueId sums = cumulated(x.log_decay);
    const ValueId k_beta = times_rows(x.k, x.beta), v_beta = times_rows(x.v, x.beta);
    const ValueId decays = b_.mul(pair_decays(sums), seen_tokens());
    const ValueId solved = inverse(b_.mul(product(k_beta, x.k, Transposed::second), decays));
    const ValueId scores = b_.mul(product(x.q, x.k, Transposed::second), decays);
    const ValueId since_start = masked(b_.unary(OpCode::exp, sums), reads_state_);
    const ValueId last = at(sums, 1, chunk_ - 1);
    const ValueId behind = b_.sub(b_.broadcast(last, b_.shape(sums), {0}), sums);
    parts_ = {.q = times_rows(x.q, since_start),
              .k = times_rows(x.k, masked(b_.unary(OpCode::exp, behind), is_kept_)),
              .v = product(solved, v_beta),
              .known = product(solved, times_rows(k_beta, since_start)),
              .scores = scores,
              .decay = masked(b_.unary(OpCode::exp, last), passes_)};
    return chunks_ == 1 ? of_one_chunk() : scanned();
  }

  ValueId of_one_chunk() {
    if (state_ == kNoValue) return product(parts_.scores, parts_.v);
    const ValueId v = b_.sub(parts_.v, product(parts_.known, state_));
    const ValueId y = product_plus(parts_.scores, v, product(parts_.q, state_));
    const ValueId decay = b_.broadcast(parts_.decay, b_.shape(state_), {0});
    state_ = b_.add(b_.mul(state_, decay), product(parts_.k, v, Transposed::first));
    return y;
  }

  // The same of many chunks. From one to the next a state becomes
  //   decay S + k^T (v - known S) = (decay - k^T known) S + k^T v
  // whose matrices, and what is read of the states, are made of all chunks at once.
  ValueId scanned() {
    const int64_t m = rows_ * chunks_, keys = key_dim_;
    const Shape square{m, keys, keys};
    const ValueId places = b_.iota({keys, keys}, 0);
    const ValueId unit = ones_where(b_.equal(places, b_.iota({keys, keys}, 1)));
    const ValueId decay =
        b_.mul(b_.broadcast(parts_.decay, square, {0}), b_.broadcast(unit, square, {1, 2}));
    const ValueId passed = b_.sub(decay, product(parts_.k, parts_.known, Transposed::first));
    const ValueId added = product(parts_.k, parts_.v, Transposed::first);
    const ValueIds factors = apart(passed), addends = apart(added);
    ValueIds states = {state_ == kNoValue ? b_.fill({rows_, keys, value_dim_}, 0) : state_};
    for (size_t i = 0; i < factors.size(); ++i) {
      const bool is_zero = i == 0 && state_ == kNoValue;
      states.push_back(is_zero ? addends[i] : product_plus(factors[i], states[i], addends[i]));
    }
    state_ = states.back();
    states.pop_back();
    const ValueId before = b_.reshape(b_.concatenate(states, 1), {m, keys, value_dim_});
    const ValueId v = b_.sub(parts_.v, product(parts_.known, before));
    return product_plus(parts_.scores, v, product(parts_.q, before));
  }

  // x [M, d, w] as its chunks, [P, d, w] each: by halves, so that a gradient's sums are of halves.
  ValueIds apart(ValueId x) {
    const Shape shape = b_.shape(x);
    const Shape of_one{rows_, shape[1], shape[2]};
    ValueIds parts = {b_.reshape(x, {rows_, chunks_, shape[1], shape[2]})};
    for (bool is_done = false; !is_done;) {
      is_done = true;
      ValueIds halves;
      for (const ValueId part : parts) {
        const int64_t n = b_.shape(part)[1], half = n / 2;
        if (n == 1) {
          halves.push_back(part);
          continue;
        }
        is_done = is_done && n == 2;
        halves.push_back(b_.slice(part, 1, 0, half));
        halves.push_back(b_.slice(part, 1, half, n - half));
      }
      parts = std::move(halves);
    }
    for (ValueId& part : parts) part = b_.reshape(part, of_one);
    return parts;
  }

  // [M, c, value_dim] -> [B*T, value_heads * value_dim]
  ValueId text_rows(ValueId y) {
    const int64_t padded = chunks_ * chunk_;
    ValueId all = b_.reshape(y, {batch_, heads_, padded, value_dim_});
    if (padded > seq_) all = b_.slice(all, 2, 0, seq_);
    return b_.reshape(b_.transpose(all, {0, 2, 1, 3}), {batch_ * seq_, heads_ * value_dim_});
  }

  Builder& b_;
  int64_t batch_, seq_, key_heads_, heads_, key_dim_, value_dim_;
  int64_t chunk_ = 0, chunks_ = 0, rows_ = 0;
  ValueId state_ = kNoValue;  // [P, key_dim, value_dim]
  ValueId is_same_ = kNoValue, reads_state_ = kNoValue, is_kept_ = kNoValue, passes_ = kNoValue;
  Parts parts_;
};

}  // namespace

Values emit_delta_steps(Builder& b, const GatedDeltaAttrs& attrs, const DeltaOperands& x) {
  return DeltaRule(b, attrs, x).run(x);
}

}  // namespace octet::ops
