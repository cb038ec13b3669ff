// (value - target)^2 of each row; a target that is NaN does not count.
#include "nn/blocks.h"
#include "nn/losses/list.h"

namespace octet {
namespace {

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const ValueId targets = blocks.input("targets");
  const ValueId values = b.reshape(blocks.in_f32(call.output), b.shape(targets));
  const ValueId counts = b.equal(targets, targets);
  const ValueId gap = b.select(counts, b.sub(values, targets), b.fill_like(values, 0));
  const ValueId error = b.unary(OpCode::square, gap);
  return {b.mul(call.inv_n, b.reduce_sum(error, {0})),
          {{"squared_error", error}, {"prediction", values}}};
}

}  // namespace

const LossDef kRegression = {
    .name = "regression",
    .help = "the squared error of each row's value",
    .output = "value",
    .inputs =
        [](const ModelSpec&) {
          return std::vector<InputSpec>{
              {.name = "targets", .per = Per::row, .type = HostType::real, .fill = Fill::ignored}};
        },
    .counted = "targets",
    .metrics = {"squared_error", "prediction"},
    .compared = "prediction",
    .comparison = Comparison::rank_correlation,
    .build = build};

}  // namespace octet
