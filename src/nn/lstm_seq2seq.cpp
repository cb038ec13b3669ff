// An LSTM encoder and decoder with attention, as GNMT has them: the decoder's first layer asks the
// attention, whose answer stands beside what each layer behind it reads; from the third layer on
// there are residual sums; the decoder's layers begin with the last states of the encoder's. All
// layers run forward in time, and attention is Luong's "general" (heads: 1) or that of heads that
// each have a part of the width. One table of embeddings for source, target and, where `tied`,
// head. Source: Wu et al. 2016; Luong et al. 2015; Hochreiter & Schmidhuber 1997 with a forget
// gate. Gates lie as PyTorch's nn.LSTM has them: input, forget, cell, output.
//
// Steps are unrolled, kMaxUnrolledSteps at most, so that a layer's one matrix of the recurrence is
// read by as many GEMMs (ir/linear_use.h). An encoder's states stay where their text ends.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "nn/blocks.h"
#include "nn/list.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr HfKey kKeys[] = {
    {.field = "vocab", .key = "vocab_size"},
    {.field = "hidden", .key = "hidden_size"},
    {.field = "layers", .key = "num_layers"},
    {.field = "decoder_layers", .key = "num_decoder_layers", .absent = 0, .zero_is_null = true},
    {.field = "heads", .key = "num_attention_heads", .absent = 1},
    {.field = "max_positions", .key = "max_position_embeddings", .absent = kMaxUnrolledSteps},
    {.field = "source_seq", .key = "source_positions", .absent_as = "max_positions"},
    {.field = "tied", .key = "tie_word_embeddings", .absent = 1},
    {.field = "start_token", .key = "decoder_start_token_id"},
};
constexpr HfNeutral kNeutrals[] = {
    {.key = "is_encoder_decoder", .value = "true"},
    {.key = "bidirectional", .value = "false"},
};

std::optional<ModelFault> fault(const ModelSpec& full) {
  if (full.layers < 2)
    return ModelFault{.field = "layers",
                      .expected = "2 or more, of which the second reads the attention",
                      .got = std::to_string(full.layers)};
  if (full.decoder_layers != full.layers)
    return fault_against("decoder_layers", "layers", "{}, whose last states it begins with", full);
  if (full.heads * full.head_dim != full.hidden)
    return fault_against("head_dim", "hidden", "{} / heads", full);
  return std::nullopt;
}

// Of a layer, [B, hidden] each.
struct State {
  ValueId h = kNoValue, c = kNoValue;
};
struct Run {
  ValueId outputs;  // [B * n, hidden]
  State last;
};

// c' = f c + i g, h' = o tanh(c'), of gates [B, 4 hidden]; of no state without the first product.
State next_state(Blocks& b, ValueId gates, ValueId c) {
  Builder& builder = b.builder();
  const int64_t width = b.spec().hidden;
  const auto gate = [&](int64_t i, OpCode op) {
    return builder.unary(op, b.columns(gates, i * width, width));
  };
  const ValueId candidate = gate(2, OpCode::tanh), in = gate(0, OpCode::logistic);
  ValueId next = builder.mul(in, candidate);
  if (c != kNoValue) next = builder.add(builder.mul(gate(1, OpCode::logistic), c), next);
  const ValueId shown = builder.unary(OpCode::tanh, next), out = gate(3, OpCode::logistic);
  return {builder.mul(out, shown), next};
}

// The layer over each row's n steps of x [B * n, in]. A row whose `ends` [B, hidden] is not
// behind a step keeps its state there; without `ends` all go on.
Run recurrence(Blocks& b, ValueId x, State state, ValueId ends) {
  Builder& builder = b.builder();
  const int64_t rows = b.size().batch, n = b.shape(x)[0] / rows, width = b.spec().hidden;
  const LinearOptions options{.std = 1 / std::sqrt(3.0 * static_cast<double>(width))};
  LinearOptions with_bias = options;
  with_bias.bias = WithBias::yes;
  ValueId read = b.bias(b.linear(x, "ih", 4 * width, with_bias), "hh.bias");
  read = builder.reshape(read, {rows, n * 4 * width});
  b.linear_weight("hh", 4 * width, width, options);  // of one step, too
  ValueIds outputs;
  for (int64_t t = 0; t < n; ++t) {
    ValueId gates = b.columns(read, t * 4 * width, 4 * width);
    if (state.h != kNoValue)
      gates = builder.add(gates, b.linear(state.h, "hh", 4 * width, options));
    b.module("cell");
    State next = next_state(b, gates, state.c);
    if (ends != kNoValue && t > 0) {
      const ValueId goes_on = builder.less(builder.fill_like(ends, static_cast<double>(t)), ends);
      next = {builder.select(goes_on, next.h, state.h), builder.select(goes_on, next.c, state.c)};
    }
    state = next;
    outputs.push_back(state.h);
  }
  const ValueId all = outputs.size() == 1 ? outputs.front() : builder.concatenate(outputs, 1);
  return {builder.reshape(all, {rows * n, width}), state};
}

ValueId embedded(Blocks& b, ValueId ids) {
  constexpr double kStd = 0.0577;  // of the uniform numbers in [-0.1, 0.1] that GNMT begins with
  const ModelSpec& spec = b.spec();
  b.enter(-1, "");
  return b.embedding_of("shared", ids, {.n = spec.vocab, .width = spec.hidden, .std = kStd});
}

ValueId with_residual(Blocks& b, int64_t layer, ValueId x, ValueId y) {
  return layer < 2 ? y : b.add(x, y);
}

struct Encoded {
  ValueId outputs;
  std::vector<State> last;  // of each layer
};

Encoded encoder(Blocks& b, ValueId length) {
  Builder& builder = b.builder();
  const int64_t rows = b.size().batch, n = b.spec().source_seq;
  ValueId x = embedded(b, builder.reshape(b.input("source"), {rows * n}));
  b.module("ends");
  const ValueId ends = builder.broadcast(b.in_f32(builder.unary(OpCode::cast, length)),
                                         {rows, b.spec().hidden}, {0});
  Encoded encoded;
  for (int64_t i = 0; i < b.layers("encoder"); ++i) {
    b.enter_layer("encoder", i, fmt::format("encoder.layers.{}.", i));
    const Run run = recurrence(b, x, {}, ends);
    encoded.last.push_back(run.last);
    x = with_residual(b, i, x, run.outputs);
  }
  encoded.outputs = x;
  return encoded;
}

Outputs build(Blocks& b) {
  const ModelSpec& spec = b.spec();
  const BatchSize& size = b.size();
  if (std::max(size.seq, spec.source_seq) > kMaxUnrolledSteps || size.cache > 0) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected at most {} tokens of a source (model.source_seq) and of a target "
                "(model.seq) and no cache for kind {}, whose steps are unrolled, got {}, {} and a "
                "cache of {}",
                kMaxUnrolledSteps, model_def(spec.kind).name, spec.source_seq, size.seq,
                size.cache);
  }
  const ValueId length = b.input("source_length");
  const Encoded source = encoder(b, length);
  ValueId x = embedded(b, b.input("tokens")), context = kNoValue;
  const ValueId ends = b.of_each_row(length, size.seq);
  for (int64_t i = 0; i < b.layers("decoder"); ++i) {
    b.enter_layer("decoder", i, fmt::format("decoder.layers.{}.", i));
    const ValueId read = i == 0 ? x : b.builder().concatenate({x, context}, 1);
    const Run run = recurrence(b, read, source.last[static_cast<size_t>(i)], kNoValue);
    x = with_residual(b, i, x, run.outputs);
    if (i > 0) continue;
    const ValueId query = b.linear(x, "attention.query", spec.hidden);
    context = b.attention(query, source.outputs, source.outputs,
                          {.mask = AttentionMask::full, .key_ends = ends, .scale = 1});
  }
  b.enter(-1, "");
  return {b.head(x, "shared.weight")};
}

}  // namespace

constinit const ModelDef kLstmSeq2seq = {.kind = ModelKind::lstm_seq2seq,
                                         .name = "lstm_seq2seq",
                                         .architecture = "LstmSeq2Seq",
                                         .prefix = "",
                                         .positions = Positions::none,
                                         .grouped_heads = false,
                                         .hf_keys = kKeys,
                                         .own_hf_keys = {},
                                         .hf_neutrals = kNeutrals,
                                         .build = build,
                                         .inputs = source_inputs,
                                         .stacks = encoder_and_decoder,
                                         .writes_text = false,
                                         .translates = true,
                                         .is_recurrent = true,
                                         .fault = fault};

}  // namespace octet
