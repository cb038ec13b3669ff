// Cross entropy of each token: with the one that follows it, or with the one that a mask hides.
// What differs is where the data put labels, and that the latter tells how many it finds. Labels
// are smoothed by LossOptions::smoothing as those of classes; the metric nll is of the labels
// themselves.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

std::vector<InputSpec> token_labels(const ModelSpec& spec) {
  InputSpec labels = token_labels_input();
  labels.bound = spec.vocab;
  return {labels};
}

LossValues build(Blocks& b, const LossCall& call) {
  return b.cross_entropy(call.output, b.input("labels"), call.inv_n, call.options.smoothing);
}

// And which hidden tokens the largest logit finds.
LossValues build_masked(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  return label_values(
      b, label_loss(b, call.output, blocks.input("labels"), call.inv_n, call.options.smoothing));
}

}  // namespace

const LossDef kNextToken = {
    .name = "next_token",
    .help = "cross entropy of each token's logits with the token that follows it",
    .output = "logits",
    .inputs = token_labels,
    .counted = "labels",
    .metrics = {"nll"},
    .build = build};

const LossDef kMaskedToken = {.name = "masked_token",
                              .help = "cross entropy of the tokens that a mask hides",
                              .output = "logits",
                              .inputs = token_labels,
                              .counted = "labels",
                              .hides_tokens = true,
                              .metrics = {"nll", "correct"},
                              .build = build_masked};

}  // namespace octet
