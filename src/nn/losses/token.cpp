// Cross entropy of each token: with the one that follows it, or with the one that a mask hides. The
// graph is the same; what differs is where the data put labels.
#include "nn/blocks.h"
#include "nn/losses/list.h"

namespace octet {
namespace {

std::vector<InputSpec> token_labels(const ModelSpec& spec) {
  InputSpec labels = token_labels_input();
  labels.bound = spec.vocab;
  return {labels};
}

LossValues build(Blocks& b, const LossCall& call) {
  return b.cross_entropy(call.output, b.input("labels"), call.inv_n);
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
                              .metrics = {"nll"},
                              .build = build};

}  // namespace octet
