// The blocks that images are read with.
#include "base/error.h"
#include "nn/blocks.h"

namespace octet {

ValueId Blocks::patches(ValueId images) {
  module("patches");
  const int64_t n = batch_.batch, c = spec_.channels, p = spec_.patch_size,
                side = spec_.image_size / p;
  const ValueId apart = builder_.reshape(images, {n, c, side, p, side, p});
  return builder_.reshape(builder_.transpose(apart, {0, 2, 4, 1, 3, 5}),
                          {n * side * side, c * p * p});
}

ValueId Blocks::stacked(ValueId a, ValueId b) {
  return builder_.emit1(OpCode::concatenate, AxisAttrs{.axis = 0}, {a, b});
}

ValueId Blocks::with_first_rows(ValueId first, ValueId x) {
  const int64_t n = batch_.batch, k = shape(first)[0], width = shape(first)[1],
                rows = shape(x)[0] / n;
  const ValueId repeated = builder_.broadcast(first, {n, k, width}, {1, 2});
  const ValueId whole =
      builder_.emit1(OpCode::concatenate, AxisAttrs{.axis = 1},
                     {repeated, builder_.reshape(x, {n, rows, width})});
  return builder_.reshape(whole, {n * (k + rows), width});
}

ValueId Blocks::add_rows(ValueId x, ValueId rows) {
  const int64_t n = batch_.batch, k = shape(rows)[0], width = shape(rows)[1];
  CHECK(shape(x)[0] == n * k);
  const ValueId repeated = builder_.broadcast(rows, {n, k, width}, {1, 2});
  return builder_.add(x, builder_.reshape(repeated, {n * k, width}));
}

ValueId Blocks::row_of_each(ValueId x, int64_t i) {
  const int64_t n = batch_.batch, rows = shape(x)[0] / n, width = shape(x)[1];
  const ValueId one = builder_.emit1(
      OpCode::slice,
      SliceAttrs{.start = {0, i, 0}, .limit = {n, i + 1, width}, .stride = {1, 1, 1}},
      {builder_.reshape(x, {n, rows, width})});
  return builder_.reshape(one, {n, width});
}

}  // namespace octet
