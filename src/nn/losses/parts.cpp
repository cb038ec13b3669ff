#include "nn/losses/parts.h"

namespace octet {

ValueId as_numbers(Builder& b, ValueId condition) {
  return b.select(condition, b.fill_like(condition, 1), b.fill_like(condition, 0));
}

LabelLoss label_loss(Builder& b, ValueId logits, ValueId labels, ValueId inv_n, double smoothing) {
  const auto results = b.emit(OpCode::cross_entropy, CrossEntropyAttrs{.smoothing = smoothing},
                              {logits, labels, inv_n});
  const ValueId largest = b.emit1(OpCode::argmax, AxisAttrs{.axis = 1}, {logits});
  return {.loss = results[CrossEntropy::loss],
          .nll = results[CrossEntropy::nll],
          .correct = b.equal(largest, labels)};
}

LossValues label_values(Builder& b, const LabelLoss& all) {
  return {all.loss, {{"nll", all.nll}, {"correct", as_numbers(b, all.correct)}}};
}

// softplus = (x + |x|) / 2 + log(1 + e^-|x|): nothing overflows, and the gradient at 0 is 1/2.
ValueId softplus(Builder& b, ValueId x) {
  const ValueId size = b.unary(OpCode::abs, x);
  const ValueId rest = b.plus(b.unary(OpCode::exp, b.neg(size)), 1);
  return b.add(b.scaled(b.add(x, size), 0.5), b.unary(OpCode::log, rest));
}

ValueId row_of_samples(Builder& b, ValueId x, int64_t row, int64_t rows_per_sample) {
  const Shape shape = b.shape(x);
  SliceAttrs every{
      .start = Shape(shape.size(), 0), .limit = shape, .stride = Shape(shape.size(), 1)};
  every.start[0] = row;
  every.stride[0] = rows_per_sample;
  return b.emit1(OpCode::slice, every, {x});
}

Pairs pairs_of(Builder& b, ValueId x) {
  return {.first = row_of_samples(b, x, 0, 2), .second = row_of_samples(b, x, 1, 2)};
}

}  // namespace octet
