// Rows 2i and 2i + 1 mean the same: of all second rows of the micro-batch, each first row's own is
// told from the others. scores[i, j] = cos(x[2i], x[2j + 1]) / temperature; the loss is the cross
// entropy of scores[i] with i. Source: Henderson et al. 2017, in the form of Reimers & Gurevych's
// MultipleNegativesRankingLoss.
// The other pairs are those of the micro-batch on one rank: unlike every other loss it is another
// one where rows are cut otherwise. A row of zeros has cosine 0 with all.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

// Each row over its length, at least 1e-12.
ValueId unit_rows(Builder& b, ValueId x) {
  const ValueId square = b.reduce_sum(b.unary(OpCode::square, x), {1});
  const ValueId length = b.unary(OpCode::sqrt, b.maximum(square, b.fill_like(square, 1e-24)));
  return b.div(x, b.broadcast_along(length, b.shape(x), 1));
}

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Pairs unit = pairs_of(b, unit_rows(b, blocks.in_f32(call.output)));
  const ValueId cosines = b.gemm(unit.first, unit.second, {.trans_b = true});
  const ValueId scores = b.scaled(cosines, 1 / call.options.temperature);
  const Shape pairs = {b.shape(scores)[0]};
  const ValueId own = b.iota(pairs, 0);
  return label_values(b, label_loss(b, scores, own, call.inv_n));
}

}  // namespace

const LossDef kContrastive = {
    .name = "contrastive",
    .help = "tells each row's partner, the row behind it, from those of other rows",
    .output = "embeddings",
    .inputs = [](const ModelSpec&) { return std::vector<InputSpec>{}; },
    .counted = "samples",
    .rows_per_sample = 2,
    .min_samples = 2,
    .metrics = {"nll", "correct"},
    .build = build};

}  // namespace octet
