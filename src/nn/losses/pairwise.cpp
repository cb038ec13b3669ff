// Direct preference optimization: row 2i was preferred to row 2i + 1.
//   margin = beta ((nll_ref - nll)[2i] - (nll_ref - nll)[2i + 1]),  loss = log(1 + e^-margin)
// with nll the sum over a row's labels and nll_ref the same of the reference model, which the data
// bring. Source: Rafailov et al. 2023, equation 7.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const int64_t rows = blocks.size().batch, seq = blocks.size().seq;
  const ValueId of_tokens =
      blocks.cross_entropy(call.output, blocks.input("labels"), call.inv_n).metrics[0].value;
  const ValueId own = b.reduce_sum(b.reshape(of_tokens, {rows, seq}), {1});
  const Pairs gain = pairs_of(b, b.sub(blocks.input("reference_nll"), own));
  const ValueId margin = b.scaled(b.sub(gain.first, gain.second), call.options.beta);
  const ValueId loss = softplus(b, b.neg(margin));
  const ValueId correct = b.less(b.fill_like(margin, 0), margin);
  return {b.mul(call.inv_n, b.reduce_sum(loss, {0})),
          {{"pair_loss", loss}, {"margin", margin}, {"correct", as_numbers(b, correct)}}};
}

}  // namespace

const LossDef kPairwise = {
    .name = "pairwise",
    .help = "direct preference optimization: of two rows the first one was preferred",
    .output = "logits",
    .inputs =
        [](const ModelSpec& spec) {
          InputSpec labels = token_labels_input();
          labels.bound = spec.vocab;
          return std::vector<InputSpec>{
              labels, {.name = "reference_nll", .per = Per::row, .type = HostType::real}};
        },
    .counted = "samples",
    .rows_per_sample = 2,
    .metrics = {"pair_loss", "margin", "correct"},
    .build = build};

}  // namespace octet
