// Samples of R = 2 + K rows: the first two mean the same, and K others (LossOptions::negatives) do
// not. Of all rows of the micro-batch but the samples' first ones, each first row's partner is told
// from the others: scores[i, k n + j] = cos(x[R i], x[R j + 1 + k]) / temperature for n samples and
// k from 0 to K; the loss is the cross entropy of scores[i] with i. Source: Henderson et al. 2017,
// in the form of Reimers & Gurevych's MultipleNegativesRankingLoss.
// The other pairs are those of the micro-batch on one rank: unlike every other loss it is another
// one where rows are cut otherwise. Pairs that only fill the batch up (the input "fillers") are
// nobody else's candidates: kHidden is taken from their scores. A row of zeros has cosine 0 with
// all.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

constexpr double kHidden = 1e30;  // finite, and in f32 far above any score

// Each row over its length, at least 1e-12.
ValueId unit_rows(Builder& b, ValueId x) {
  const ValueId square = b.reduce_sum(b.unary(OpCode::square, x), {1});
  const ValueId length = b.unary(OpCode::sqrt, b.maximum(square, b.fill_like(square, 1e-24)));
  return b.div(x, b.broadcast_along(length, b.shape(x), 1));
}

// x [n, n] as columns [k n, (k + 1) n) of [n, N n], between zeros.
ValueId at_columns(Builder& b, ValueId x, int64_t k, int64_t n_parts) {
  if (n_parts == 1) return x;
  const int64_t n = b.shape(x)[1];
  return b.emit1(OpCode::pad, PadAttrs{{0, k * n}, {0, (n_parts - 1 - k) * n}, {0, 0}}, {x});
}

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const ValueId unit = unit_rows(b, blocks.in_f32(call.output));
  const int64_t n_candidates = 1 + call.options.negatives;
  const auto row = [&](int64_t i) { return row_of_samples(b, unit, i, 1 + n_candidates); };
  const ValueId first = row(0), fillers = blocks.in_f32(blocks.input("fillers"));
  const int64_t n = b.shape(first)[0];
  const ValueId hidden = b.broadcast_along(b.scaled(fillers, kHidden), {n, n}, 0);
  const ValueId is_own = b.equal(b.iota({n, n}, 0), b.iota({n, n}, 1));
  ValueId scores = kNoValue;
  for (int64_t k = 0; k < n_candidates; ++k) {
    const ValueId cosines = b.gemm(first, row(1 + k), {.trans_b = true});
    const ValueId all = b.scaled(cosines, 1 / call.options.temperature);
    const ValueId part = b.sub(all, k == 0 ? b.select(is_own, b.fill({n, n}, 0), hidden) : hidden);
    const ValueId columns = at_columns(b, part, k, n_candidates);
    scores = k == 0 ? columns : b.add(scores, columns);
  }
  const ValueId own = b.iota({n}, 0);
  return label_values(b, label_loss(b, scores, own, call.inv_n));
}

}  // namespace

const LossDef kContrastive = {
    .name = "contrastive",
    .help = "tells each row's partner, the row behind it, from those of other rows",
    .output = "embeddings",
    .inputs = [](const ModelSpec&) { return std::vector<InputSpec>{fillers_input()}; },
    .counted = "samples",
    .rows_per_sample = 2,
    .takes_negatives = true,
    .min_samples = 2,
    .metrics = {"nll", "correct"},
    .build = build};

}  // namespace octet
