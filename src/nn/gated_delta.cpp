#include "nn/gated_delta.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace octet {
namespace {

constexpr int64_t kChunk = 64;
constexpr double kLengthEps = 1e-6;

// Batch B, heads H of values, n chunks of c tokens, P = B H, M = P n.
class DeltaRule {
 public:
  DeltaRule(Blocks& blocks, const GatedDelta& x)
      : blocks_(blocks), b_(blocks.builder()), x_(x), batch_(blocks.size().batch) {
    seq_ = blocks.size().seq;
    chunk_ = std::min<int64_t>(kChunk, std::bit_ceil(static_cast<uint64_t>(seq_)));
    chunks_ = (seq_ + chunk_ - 1) / chunk_;
    rows_ = batch_ * x.value_heads;
  }

  ValueId run() {
    read_documents();
    const double scale = 1 / std::sqrt(static_cast<double>(x_.key_dim));
    const ValueId q = b_.scaled(keys(x_.q), scale), k = keys(x_.k);
    const ValueId v = chunked(heads(x_.v, x_.value_heads, x_.value_dim), x_.value_dim);
    const ValueId beta = numbers(x_.beta), sums = cumulated(numbers(x_.log_decay));
    const ValueId k_beta = times_rows(k, beta), v_beta = times_rows(v, beta);
    const ValueId decays = pair_decays(sums);
    const ValueId solved = inverse(b_.mul(product(k_beta, k, Transposed::second), decays));
    const ValueId seen = triangle(false);
    const ValueId scores = b_.mul(b_.mul(product(q, k, Transposed::second), decays), seen);
    const ValueId since_start = masked(b_.unary(OpCode::exp, sums), reads_state_);
    const ValueId last = at(sums, 1, chunk_ - 1);
    const ValueId behind = b_.sub(b_.broadcast(last, b_.shape(sums), {0}), sums);
    parts_ = {.q = times_rows(q, since_start),
              .k = times_rows(k, masked(b_.unary(OpCode::exp, behind), is_kept_)),
              .v = product(solved, v_beta),
              .known = product(solved, times_rows(k_beta, since_start)),
              .scores = scores,
              .decay = masked(b_.unary(OpCode::exp, last), passes_)};
    return scanned();
  }

 private:
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
    if (more > 0) x = b_.concatenate({x, b_.fill({batch_, x_.value_heads, more, width}, 0)}, 2);
    return b_.reshape(x, {rows_ * chunks_, chunk_, width});
  }
  // [B*T, H] -> [M, c]
  ValueId numbers(ValueId x) {
    return b_.reshape(chunked(heads(x, x_.value_heads, 1), 1), {rows_ * chunks_, chunk_});
  }
  // Of length 1, for each head of values.
  ValueId keys(ValueId x) {
    const ValueId apart = heads(x, x_.key_heads, x_.key_dim);
    const Shape shape = b_.shape(apart);
    const ValueId squares = b_.reduce_sum(b_.unary(OpCode::square, apart), {3});
    const ValueId inverse = b_.unary(OpCode::rsqrt, b_.plus(squares, kLengthEps));
    ValueId unit = b_.mul(apart, b_.broadcast(inverse, shape, {0, 1, 2}));
    const int64_t group = x_.value_heads / x_.key_heads;
    if (group > 1) {
      unit = b_.broadcast(unit, {batch_, x_.key_heads, group, seq_, x_.key_dim}, {0, 1, 3, 4});
      unit = b_.reshape(unit, {batch_, x_.value_heads, seq_, x_.key_dim});
    }
    return chunked(unit, x_.key_dim);
  }

  // 1 where the condition is met.
  ValueId ones_where(ValueId condition) {
    const Shape shape = b_.shape(condition);
    const ValueId one = b_.fill(shape, 1), none = b_.fill(shape, 0);
    return b_.select(condition, one, none);
  }
  // [c, c]: 1 where the column is before the row, or is it.
  ValueId lower(bool is_strict) {
    const Shape square{chunk_, chunk_};
    const ValueId row = b_.iota(square, 0), column = b_.iota(square, 1);
    return ones_where(is_strict ? b_.less(column, row)
                                : b_.binary(OpCode::less_equal, column, row));
  }
  Shape squares() const { return {rows_ * chunks_, chunk_, chunk_}; }
  // The same for each chunk, within documents.
  ValueId triangle(bool is_strict) {
    return masked(b_.broadcast(lower(is_strict), squares(), {1, 2}), is_same_);
  }
  // Sums of all places up to each.
  ValueId cumulated(ValueId x) { return b_.gemm(x, lower(false), {.trans_b = true}); }
  // What is left at a row's place of a column's before it; 1 above the diagonal.
  ValueId pair_decays(ValueId sums) {
    const ValueId later = b_.broadcast(sums, squares(), {0, 1});
    const ValueId earlier = b_.broadcast(sums, squares(), {0, 2});
    const ValueId difference = b_.sub(later, earlier);
    return b_.unary(OpCode::exp, b_.minimum(difference, b_.fill_like(difference, 0)));
  }

  // Of I + what x has below the diagonal. X, the inverse of its blocks of s by s along the
  // diagonal, gives that of twice their size: X - X (x's blocks between two of them) X.
  ValueId inverse(ValueId x) {
    x = b_.mul(x, triangle(true));
    const Shape square{chunk_, chunk_};
    const ValueId row = b_.iota(square, 0), column = b_.iota(square, 1);
    const ValueId unit = ones_where(b_.equal(row, column));
    ValueId known = b_.broadcast(unit, squares(), {1, 2});
    for (int64_t size = 1; size < chunk_; size *= 2) {
      const ValueId between = b_.mul(x, b_.broadcast(between_blocks(size), squares(), {1, 2}));
      known = b_.sub(known, product(product(known, between), known));
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
  void read_documents() {
    const ValueId given = blocks_.input_or_none("doc_starts");
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
    shape.insert(shape.begin() + 1, x_.value_heads);
    for (int64_t i = 0; i < std::ssize(shape); ++i) {
      if (i != 1) axes.push_back(i);
    }
    const ValueId all = b_.broadcast(x, shape, axes);
    shape.erase(shape.begin(), shape.begin() + 2);
    shape[0] = rows_ * chunks_;
    return b_.reshape(all, shape);
  }

  // A chunk of all rows, [M, ...] -> [P, ...].
  ValueId of_chunk(ValueId x, int64_t i) {
    Shape shape = b_.shape(x);
    shape.insert(shape.begin() + 1, chunks_);
    shape[0] = rows_;
    return at(b_.reshape(x, shape), 1, i);
  }

  // From chunk to chunk.
  ValueId scanned() {
    ValueId state = kNoValue;  // [P, key_dim, value_dim]
    ValueIds outputs;
    for (int64_t i = 0; i < chunks_; ++i) {
      ValueId v = of_chunk(parts_.v, i);
      if (state != kNoValue) v = b_.sub(v, product(of_chunk(parts_.known, i), state));
      ValueId o = product(of_chunk(parts_.scores, i), v);
      if (state != kNoValue) o = b_.add(o, product(of_chunk(parts_.q, i), state));
      outputs.push_back(o);
      if (i + 1 == chunks_) break;
      ValueId next = product(of_chunk(parts_.k, i), v, Transposed::first);
      if (state != kNoValue) {
        const ValueId decay = b_.broadcast(of_chunk(parts_.decay, i), b_.shape(state), {0});
        next = b_.add(next, b_.mul(state, decay));
      }
      state = next;
    }
    ValueId all = outputs.size() == 1 ? outputs[0] : b_.concatenate(outputs, 1);
    const int64_t padded = chunks_ * chunk_;
    all = b_.reshape(all, {batch_, x_.value_heads, padded, x_.value_dim});
    if (padded > seq_) all = b_.slice(all, 2, 0, seq_);
    return b_.reshape(b_.transpose(all, {0, 2, 1, 3}),
                      {batch_ * seq_, x_.value_heads * x_.value_dim});
  }

  Blocks& blocks_;
  Builder& b_;
  const GatedDelta& x_;
  int64_t batch_, seq_ = 0, chunk_ = 0, chunks_ = 0, rows_ = 0;
  ValueId is_same_ = kNoValue, reads_state_ = kNoValue, is_kept_ = kNoValue, passes_ = kNoValue;
  Parts parts_;
};

}  // namespace

ValueId gated_delta_rule(Blocks& blocks, const GatedDelta& x) {
  if (blocks.size().cache > 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected layers whose keys and values a cache holds, got the gated delta "
                "rule");
  }
  return DeltaRule(blocks, x).run();
}

ValueId causal_convolution(Blocks& blocks, ValueId x, ValueId weight) {
  Builder& b = blocks.builder();
  const int64_t batch = blocks.size().batch, seq = blocks.size().seq;
  const Shape rows = b.shape(x);
  const int64_t channels = rows[1], width = b.shape(weight)[1];
  const bool is_isolated = blocks.input_or_none("doc_starts") != kNoValue;
  const ValueId places = b.iota({rows[0], width}, 1);
  ValueId sum = kNoValue;
  for (int64_t i = 0; i < std::min(width, seq); ++i) {
    ValueId shifted = x;
    if (i > 0) {
      const ValueId kept = b.slice(b.reshape(x, {batch, seq, channels}), 1, 0, seq - i);
      const ValueId before = b.fill({batch, i, channels}, 0);
      shifted = b.reshape(b.concatenate({before, kept}, 1), rows);
    }
    if (i > 0 && is_isolated) {
      const ValueId place = b.reshape(b.slice(places, 1, i, 1), {rows[0]});
      const ValueId is_other = b.less(blocks.input("positions"), place);
      const ValueId none = b.fill({rows[0]}, 0), one = b.fill({rows[0]}, 1);
      const ValueId mask = b.select(is_other, none, one);
      shifted = b.mul(shifted, b.broadcast(mask, rows, {0}));
    }
    const ValueId factor = b.reshape(b.slice(weight, 1, width - 1 - i, 1), {channels});
    const ValueId part = b.mul(shifted, b.broadcast(factor, rows, {1}));
    sum = sum == kNoValue ? part : b.add(sum, part);
  }
  return sum;
}

}  // namespace octet
