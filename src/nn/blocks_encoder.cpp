// The blocks of encoders: stacks of layers, tables, and the patches of images.
#include <algorithm>

#include "base/error.h"
#include "nn/blocks.h"

namespace octet {

void Blocks::enter_layer(std::string_view stack, int64_t i, std::string prefix) {
  int64_t first = 0;
  for (const StackSpec& one : model_def(spec_.kind).stacks(spec_)) {
    if (one.name == stack) break;
    first += one.layers;
  }
  enter(static_cast<int>(first + i), std::move(prefix));
  in_stack_ = i;
  n_layers_ = layers(stack);
  CHECK(i >= 0 && i < n_layers_);
  if (!stack.empty()) builder_.tag.layer_name = fmt::format("{}.layers.{}", stack, i);
}

ValueId Blocks::in_part(Part part, const std::function<ValueId()>& build) {
  int64_t first = 0;
  for (const StackSpec& one : model_def(whole_.kind).stacks(whole_)) {
    if (one.name == part.stack) break;
    first += one.layers;
  }
  std::swap(part_, part);
  std::swap(spec_, part_.spec);
  std::swap(batch_.batch, part_.batch);
  std::swap(part_first_, first);
  const Tag tag = builder_.tag;
  const int64_t in_stack = in_stack_, n_layers = n_layers_;
  const std::string prefix = prefix_;
  const ValueId result = build();
  builder_.tag = tag;
  in_stack_ = in_stack, n_layers_ = n_layers, prefix_ = prefix;
  std::swap(part_first_, first);
  std::swap(batch_.batch, part_.batch);
  std::swap(spec_, part_.spec);
  std::swap(part_, part);
  return result;
}

int64_t Blocks::layers(std::string_view stack) const {
  const std::vector<StackSpec> stacks = model_def(spec_.kind).stacks(spec_);
  const auto at = std::ranges::find(stacks, stack, &StackSpec::name);
  CHECK(at != stacks.end());
  return at->layers;
}

ValueId Blocks::embedding(std::string_view path, std::string_view input_name, int64_t n) {
  module(path);
  const ValueId table = matrix(name(path, "weight"), {n, spec_.hidden}, MatrixUse::embedding);
  return builder_.binary(OpCode::embedding, table, input(input_name));
}

ValueId Blocks::embedding_of(std::string_view path, ValueId ids, const TableOptions& options) {
  module(path);
  ParameterSpec spec =
      matrix_spec(name(path, "weight"), {options.n, options.width}, MatrixUse::embedding);
  if (options.std > 0) spec.std = options.std;
  return builder_.binary(OpCode::embedding, parameter(std::move(spec)), ids);
}

ValueId Blocks::of_each_row(ValueId x, int64_t n) {
  return builder_.reshape(builder_.broadcast(x, {batch_.batch, n}, {0}), {batch_.batch * n});
}

ValueId Blocks::table(std::string_view path, int64_t rows, const Shape& file_shape) {
  module(path);
  return matrix(prefix_ + std::string(path), {rows, spec_.hidden}, MatrixUse::embedding,
                file_shape);
}

ValueId Blocks::bias(ValueId x, std::string_view path) {
  module(path);
  const ValueId b = parameter(
      {.name = prefix_ + std::string(path), .shape = {builder_.shape(x)[1]}, .init = Init::zeros});
  return builder_.binary(OpCode::bias_add, x, b);
}

ValueId Blocks::fixed_bias(ValueId x, std::string_view path) {
  module(path);
  const int64_t n = builder_.shape(x)[1];
  const ValueId b = parameter({.name = prefix_ + std::string(path),
                               .shape = {n},
                               .init = Init::zeros,
                               .file_shape = {1, n},
                               .is_statistic = true});
  return builder_.binary(OpCode::bias_add, x, b);
}

ValueId Blocks::vector(std::string_view path, int64_t n, Init init) {
  return parameter({.name = prefix_ + std::string(path), .shape = {n}, .init = init});
}

ValueId Blocks::times_fixed(ValueId x, std::string_view path) {
  module(path);
  const ValueId factor = parameter({.name = prefix_ + std::string(path),
                                    .shape = {1},
                                    .init = Init::ones,
                                    .is_statistic = true});
  return builder_.rescale(x, builder_.reshape(factor, {}));
}

ValueId Blocks::tied_head(ValueId x, const std::string& embedding_name) {
  module("lm_head");
  const ValueId w =
      matrix(part_name(embedding_name), {spec_.vocab, shape(x)[1]}, MatrixUse::embedding);
  return builder_.gemm(x, w, {.trans_b = true, .role = GemmRole::forward});
}

ValueId Blocks::tanh(ValueId x, std::string_view origin) {
  module(origin);
  return builder_.unary(OpCode::tanh, x);
}

ValueId Blocks::relu(ValueId x, std::string_view origin) {
  module(origin);
  return builder_.maximum(x, builder_.fill_like(x, 0));
}

ValueId Blocks::mul(ValueId a, ValueId b, std::string_view origin) {
  module(origin);
  return builder_.mul(a, b);
}

ValueId Blocks::patches(ValueId images) {
  module("patches");
  const int64_t n = batch_.batch, c = spec_.channels, p = spec_.patch_size,
                side = spec_.image_size / p;
  const ValueId apart = builder_.reshape(images, {n, c, side, p, side, p});
  return builder_.reshape(builder_.transpose(apart, {0, 2, 4, 1, 3, 5}),
                          {n * side * side, c * p * p});
}

ValueId Blocks::stacked(ValueId a, ValueId b) {
  return builder_.concatenate({a, b}, 0);
}

ValueId Blocks::with_first_rows(ValueId first, ValueId x) {
  const int64_t n = batch_.batch, k = shape(first)[0], width = shape(first)[1],
                rows = shape(x)[0] / n;
  const ValueId repeated = builder_.broadcast(first, {n, k, width}, {1, 2});
  const ValueId whole = builder_.concatenate({repeated, builder_.reshape(x, {n, rows, width})}, 1);
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
  const ValueId one = builder_.slice(builder_.reshape(x, {n, rows, width}), 1, i, 1);
  return builder_.reshape(one, {n, width});
}

ValueId Blocks::mean_of_each(ValueId x, ValueId ends) {
  module("pooling");
  const int64_t n = batch_.batch, rows = shape(x)[0] / n, width = shape(x)[1];
  const Shape whole = {n, rows, width};
  const ValueId own = builder_.slice(builder_.reshape(ends, {n, rows}), 1, 0, 1);
  const ValueId end = builder_.broadcast(builder_.reshape(own, {n}), whole, {0});
  const ValueId place = builder_.iota(whole, 1);
  const ValueId counts = builder_.less(place, end);
  const ValueId all = builder_.reshape(in_f32(x), whole);
  const ValueId none = builder_.fill_like(all, 0), one = builder_.fill_like(all, 1);
  const ValueId sum = builder_.reduce_sum(builder_.select(counts, all, none), {1});
  return builder_.div(sum, builder_.reduce_sum(builder_.select(counts, one, none), {1}));
}

}  // namespace octet
