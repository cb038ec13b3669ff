// Cross entropy of each row's classes with its label, smoothed by LossOptions::smoothing as
// PyTorch's label_smoothing is. The metric nll is that of the labels themselves.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

std::vector<InputSpec> row_labels(const ModelSpec& spec) {
  InputSpec labels = row_label_input("labels");
  labels.bound = spec.classes;
  return {labels};
}

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  return label_values(
      b, label_loss(b, call.output, blocks.input("labels"), call.inv_n, call.options.smoothing));
}

}  // namespace

const LossDef kClasses = {.name = "classes",
                          .help = "cross entropy of each row's classes with its label",
                          .output = "classes",
                          .inputs = row_labels,
                          .counted = "labels",
                          .metrics = {"nll", "correct"},
                          .build = build};

}  // namespace octet
