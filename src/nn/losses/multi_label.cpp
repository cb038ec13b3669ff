// Any number of classes for each row, each by itself: the binary cross entropy of a logit x with a
// target t in [0, 1], log(1 + e^x) - x t, as PyTorch's BCEWithLogitsLoss, whose mean is over all
// rows and classes. A target that is NaN does not count.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"
#include "nn/spec.h"

namespace octet {
namespace {

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const Shape items = {n_elems(b.shape(blocks.input("targets")))};
  const ValueId given = b.reshape(blocks.input("targets"), items);
  const ValueId logits = b.reshape(blocks.in_f32(call.output), items);
  const ValueId none = b.fill_like(logits, 0);
  const ValueId counts = b.equal(given, given);
  const ValueId targets = b.select(counts, given, none);
  const ValueId nll = b.select(counts, b.sub(softplus(b, logits), b.mul(logits, targets)), none);
  const auto above = [&](ValueId x, double bound) {
    return as_numbers(b, b.less(b.fill_like(x, bound), x));
  };
  const ValueId correct =
      b.emit1(OpCode::equal, NoAttrs{}, {above(logits, 0), above(targets, 0.5)});
  return {b.mul(call.inv_n, b.reduce_sum(nll, {0})),
          {{"nll", nll}, {"correct", as_numbers(b, correct)}, {"logit", logits}}};
}

}  // namespace

const LossDef kMultiLabel = {
    .name = "multi_label",
    .help = "binary cross entropy of each row's classes, of which it has any number",
    .output = "multi_label",
    .inputs =
        [](const ModelSpec& spec) {
          return std::vector<InputSpec>{{.name = "targets",
                                         .per = Per::row,
                                         .inner = {spec.classes},
                                         .type = HostType::real,
                                         .fill = Fill::ignored}};
        },
    .counted = "targets",
    .metrics = {"nll", "correct", "logit"},
    .compared = "logit",
    .comparison = Comparison::label_sets,
    .build = build};

}  // namespace octet
