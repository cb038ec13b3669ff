// Cross entropy of each token with the one that follows it.
#include "nn/blocks.h"
#include "nn/losses/list.h"

namespace octet {

const LossDef kNextToken = {
    .name = "next_token",
    .help = "cross entropy of each token's logits with the token that follows it",
    .output = "logits",
    .inputs =
        [](const ModelSpec& spec) {
          InputSpec labels = token_labels_input();
          labels.bound = spec.vocab;
          return std::vector<InputSpec>{labels};
        },
    .counted = "labels",
    .metrics = {"nll"},
    .build = [](Blocks& b, ValueId logits,
                ValueId inv_n) { return b.cross_entropy(logits, b.input("labels"), inv_n); }};

}  // namespace octet
