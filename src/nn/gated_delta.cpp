#include "nn/gated_delta.h"

#include "nn/text_state.h"

namespace octet {

ValueId gated_delta_rule(Blocks& blocks, const DeltaInputs& x) {
  Builder& b = blocks.builder();
  const int64_t batch = blocks.size().batch;
  const GatedDeltaAttrs attrs{.batch = batch, .key_heads = x.key_heads};
  if (blocks.size().cache == 0) {
    return b.emit1(OpCode::gated_delta, attrs,
                   {x.q, x.k, x.v, x.log_decay, x.beta, blocks.input_or_none("doc_starts")});
  }
  TextState text(blocks, "sd", {batch, x.value_heads, x.key_dim, x.value_dim});
  const ValueId counts = b.reshape(text.counts(), {batch * blocks.size().seq});
  // 0 of tokens that do not count: they leave the state as it is.
  const auto counted = [&](ValueId of_tokens) {
    return b.mul(of_tokens, b.broadcast(counts, b.shape(of_tokens), {0}));
  };
  const ValueId state = text.first();
  const ValueId decay = counted(x.log_decay), beta = counted(x.beta);
  const ValueIds made =
      b.emit(OpCode::gated_delta, attrs, {x.q, x.k, x.v, decay, beta, kNoValue, state});
  text.next(made[GatedDelta::next_state]);
  return made[GatedDelta::o];
}

namespace {

// x [B, T, C] behind the `n` inputs before it, of which it keeps those behind the last that counts.
ValueId behind_last_inputs(Blocks& blocks, ValueId x, int64_t n) {
  Builder& b = blocks.builder();
  const Shape shape = b.shape(x);
  const int64_t batch = shape[0], seq = shape[1], channels = shape[2];
  if (blocks.size().cache == 0) return b.concatenate({b.fill({batch, n, channels}, 0), x}, 1);
  TextState state(blocks, "sx", {batch, n, channels});
  const ValueId all = b.concatenate({state.first(), x}, 1);
  // Row i of what is kept is row i + the number of tokens that count.
  const Shape rows{batch, n, n + seq};
  const ValueId n_counted = b.broadcast(b.reduce_sum(state.counts(), {1}), rows, {0});
  const auto numbers = [&](int64_t axis) { return b.unary(OpCode::cast, b.iota(rows, axis)); };
  const ValueId is_kept = b.equal(numbers(2), b.add(numbers(1), n_counted));
  const ValueId none = b.fill(rows, 0), one = b.fill(rows, 1);
  const ValueId kept = b.select(is_kept, one, none);
  state.next(b.emit1(OpCode::batched_gemm, BatchedGemmAttrs{}, {kept, all}));
  return all;
}

}  // namespace

ValueId causal_convolution(Blocks& blocks, ValueId x, ValueId weight) {
  Builder& b = blocks.builder();
  const int64_t batch = blocks.size().batch, seq = blocks.size().seq;
  const Shape rows = b.shape(x);
  const int64_t channels = rows[1], width = b.shape(weight)[1];
  const bool is_isolated = blocks.input_or_none("doc_starts") != kNoValue;
  const ValueId places = b.iota({rows[0], width}, 1);
  const int64_t n_before = width - 1;
  const ValueId all =
      n_before == 0 ? x
                    : behind_last_inputs(blocks, b.reshape(x, {batch, seq, channels}), n_before);
  ValueId sum = kNoValue;
  for (int64_t i = 0; i < width; ++i) {
    ValueId shifted = x;
    if (i > 0) shifted = b.reshape(b.slice(all, 1, n_before - i, seq), rows);
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
