// The answer to a question as a span of its row: two cross entropies over the row's places, of the
// first token and of the last one, and their mean. The model's output is [tokens, 2]: a logit of
// being the first, and one of being the last. Source: Devlin et al. 2019, section 4.2; padding is
// not left out, as there.
#include "nn/blocks.h"
#include "nn/losses/list.h"
#include "nn/losses/parts.h"

namespace octet {
namespace {

LossValues build(Blocks& blocks, const LossCall& call) {
  Builder& b = blocks.builder();
  const ValueId logits = blocks.in_f32(call.output);
  const int64_t rows = blocks.size().batch, seq = blocks.size().seq;
  const auto end = [&](int64_t column, std::string_view labels) {
    const ValueId by_row = b.reshape(blocks.columns(logits, column, 1), {rows, seq});
    return label_loss(b, by_row, blocks.input(labels), call.inv_n);
  };
  const LabelLoss first = end(0, "start_positions"), last = end(1, "end_positions");
  const auto mean = [&](ValueId x, ValueId y) { return b.scaled(b.add(x, y), 0.5); };
  const ValueId exact = b.mul(as_numbers(b, first.correct), as_numbers(b, last.correct));
  return {mean(first.loss, last.loss), {{"nll", mean(first.nll, last.nll)}, {"exact", exact}}};
}

}  // namespace

const LossDef kSpan = {
    .name = "span",
    .help = "cross entropies of where an answer begins and ends in its row, their mean",
    .output = "spans",
    .inputs =
        [](const ModelSpec&) {
          return std::vector<InputSpec>{row_label_input("start_positions"),
                                        row_label_input("end_positions")};
        },
    .counted = "start_positions",
    .metrics = {"nll", "exact"},
    .build = build};

}  // namespace octet
