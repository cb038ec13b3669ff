// Cases of the primitives.
#include "ir/op_def.h"

#include "op_cases/families.h"

namespace octet::op_cases {

void add_elementwise(Cases& all) {
  const std::vector<Shape> shapes = {{}, {1}, {7}, {3, 5}, {2, 1, 33}};
  const auto name = [](OpCode op, size_t i) {
    return std::string(op_def(op).name) + "_" + std::to_string(i);
  };
  const auto unary = [&](OpCode op, Fill fill) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      all.push_back({.name = name(op, i), .op = op, .operands = {tensor(shapes[i], fill)}});
    }
  };
  for (const OpCode op :
       {OpCode::neg, OpCode::exp, OpCode::square, OpCode::tanh, OpCode::erf, OpCode::logistic,
        OpCode::sin, OpCode::cos, OpCode::cast, OpCode::stop_gradient}) {
    unary(op, Fill::normal);
  }
  for (const OpCode op : {OpCode::abs, OpCode::sign}) unary(op, Fill::distinct);
  for (const OpCode op : {OpCode::log, OpCode::sqrt, OpCode::rsqrt}) unary(op, Fill::positive);
  all.push_back({.name = "cast_from_i32",
                 .op = OpCode::cast,
                 .operands = {integers({5}, Fill::any_ids, 9)},
                 .tolerance = Tolerance::exact});
  all.push_back({.name = "cast_from_bool",
                 .op = OpCode::cast,
                 .operands = {booleans({5})},
                 .tolerance = Tolerance::exact});
  for (const OpCode op : {OpCode::add, OpCode::sub, OpCode::mul, OpCode::div, OpCode::maximum,
                          OpCode::minimum, OpCode::less, OpCode::equal, OpCode::not_equal,
                          OpCode::less_equal, OpCode::greater, OpCode::greater_equal}) {
    const Fill second = op == OpCode::div ? Fill::positive : Fill::normal;
    for (size_t i = 0; i < shapes.size(); ++i) {
      all.push_back({.name = name(op, i),
                     .op = op,
                     .operands = {tensor(shapes[i]), tensor(shapes[i], second)}});
    }
  }
  for (const OpCode op : {OpCode::less, OpCode::equal, OpCode::not_equal, OpCode::less_equal,
                          OpCode::greater, OpCode::greater_equal}) {
    const OperandCase ids = integers({4, 9}, Fill::ids, 3);
    all.push_back({.name = name(op, 9), .op = op, .operands = {ids, ids}});
  }
  const auto put = [&](OpCode op, size_t i, Attrs attrs, std::vector<OperandCase> operands) {
    all.push_back({.name = name(op, i),
                   .op = op,
                   .attrs = std::move(attrs),
                   .operands = std::move(operands)});
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    put(OpCode::rescale, i, NoAttrs{}, {tensor(shapes[i]), scalar(0.125)});
    if (shapes[i].size() == 2) {  // a factor a row, and one a column
      put(OpCode::rescale, 100 + i, NoAttrs{}, {tensor(shapes[i]), tensor({shapes[i][0], 1})});
      put(OpCode::rescale, 200 + i, NoAttrs{}, {tensor(shapes[i]), tensor({1, shapes[i][1]})});
    }
    put(OpCode::axpby, i, NoAttrs{},
        {tensor(shapes[i]), tensor(shapes[i]), scalar(0.75), scalar(-1.25)});
    put(OpCode::set_scale, i, ScaleAttrs{.log2 = 3}, {tensor(shapes[i])});
    put(OpCode::set_scale, i + 10, ScaleAttrs{.log2 = -1}, {tensor(shapes[i]), scalar(4)});
    all.back().no_gradient = {1};
    put(OpCode::stop_scaling, i, NoAttrs{}, {tensor(shapes[i])});
    put(OpCode::is_finite, i, NoAttrs{}, {tensor(shapes[i])});
    put(OpCode::rebalance, i, ScaleAttrs{.log2 = -2}, {tensor(shapes[i])});
    put(OpCode::dynamic_rescale, i, DynamicRescaleAttrs{}, {tensor(shapes[i])});
    put(OpCode::delayed_rescale, i, DynamicRescaleAttrs{}, {tensor(shapes[i]), scalar(2)});
    all.back().no_gradient = {1};
    put(OpCode::custom_scale, i, CustomScaleAttrs{.powers = {1}, .log2 = 2},
        {tensor(shapes[i]), tensor(shapes[i])});
    all.back().no_gradient = {1};
    put(OpCode::data_scale, i, NoAttrs{}, {tensor(shapes[i])});
    put(OpCode::cast_in, i, CastInAttrs{}, {tensor(shapes[i])});
    all.back().typed_only = true;
  }
  for (const int64_t n : {0, 1, 2, 3, 7}) {
    put(OpCode::integer_pow, static_cast<size_t>(n), PowerAttrs{.n = n}, {tensor({3, 5})});
    if (n == 0) {
      all.back().no_gradient = {0};
      continue;
    }
    put(OpCode::integer_pow, static_cast<size_t>(n + 10), PowerAttrs{.n = -n},
        {tensor({3, 5}, Fill::positive)});
  }
  for (const double x : {0.0, 0.3, 0.70710678, 0.71, 1.0, 40.0})
    put(OpCode::power_of_two, static_cast<size_t>(x * 100), NoAttrs{}, {scalar(x)});
  for (size_t i = 0; i < shapes.size(); ++i) {
    all.push_back({.name = name(OpCode::select, i),
                   .op = OpCode::select,
                   .operands = {booleans(shapes[i]), tensor(shapes[i]), tensor(shapes[i])},
                   .tolerance = Tolerance::exact});
  }
}

// Adds a case: (name, op, attributes, operands).
auto putting(Cases& all, Tolerance tolerance) {
  return [&all, tolerance](const char* name, OpCode op, Attrs attrs,
                           std::vector<OperandCase> operands) {
    all.push_back({.name = name,
                   .op = op,
                   .attrs = std::move(attrs),
                   .operands = std::move(operands),
                   .tolerance = tolerance});
  };
}

void add_moves(Cases& all) {
  const auto put = putting(all, Tolerance::exact);
  put("fill_scalar", OpCode::fill, FillAttrs{.shape = {}, .value = -1.5}, {});
  put("fill_matrix", OpCode::fill, FillAttrs{.shape = {3, 7}, .value = 0.25}, {});
  put("iota_rows", OpCode::iota, IotaAttrs{.shape = {4, 3}, .axis = 0}, {});
  put("iota_last", OpCode::iota, IotaAttrs{.shape = {2, 3, 5}, .axis = 2}, {});
  const auto broadcast = [&](const char* name, Shape from, Shape shape, Shape axes) {
    put(name, OpCode::broadcast, BroadcastAttrs{.shape = std::move(shape), .axes = std::move(axes)},
        {tensor(std::move(from))});
  };
  broadcast("broadcast_scalar", {}, {2, 3}, {});
  broadcast("broadcast_rows", {5}, {5, 3}, {0});
  broadcast("broadcast_columns", {5}, {3, 5}, {1});
  broadcast("broadcast_middle", {2, 3}, {2, 4, 3}, {0, 2});
  broadcast("broadcast_same", {2, 3}, {2, 3}, {0, 1});
  put("broadcast_ids", OpCode::broadcast, BroadcastAttrs{.shape = {3, 4}, .axes = {0}},
      {integers({3}, Fill::ids, 9)});
  put("reshape_flat", OpCode::reshape, ReshapeAttrs{.shape = {12}}, {tensor({3, 4})});
  put("reshape_scalar", OpCode::reshape, ReshapeAttrs{.shape = {}}, {tensor({1, 1})});
  put("reshape_split", OpCode::reshape, ReshapeAttrs{.shape = {2, 3, 5}}, {tensor({6, 5})});
  put("transpose_2d", OpCode::transpose, TransposeAttrs{.perm = {1, 0}}, {tensor({3, 7})});
  put("transpose_3d", OpCode::transpose, TransposeAttrs{.perm = {2, 0, 1}}, {tensor({2, 3, 5})});
  put("transpose_4d", OpCode::transpose, TransposeAttrs{.perm = {0, 2, 1, 3}},
      {tensor({2, 3, 4, 5})});
  const auto slice = [&](const char* name, Shape from, SliceAttrs attrs) {
    put(name, OpCode::slice, std::move(attrs), {tensor(std::move(from))});
  };
  slice("slice_1d", {9}, {.start = {2}, .limit = {7}, .stride = {1}});
  slice("slice_strided", {9, 5}, {.start = {1, 0}, .limit = {8, 5}, .stride = {3, 2}});
  slice("slice_whole", {3, 4}, {.start = {0, 0}, .limit = {3, 4}, .stride = {1, 1}});
  const auto pad = [&](const char* name, Shape from, PadAttrs attrs) {
    put(name, OpCode::pad, std::move(attrs), {tensor(std::move(from))});
  };
  pad("pad_ends", {5}, {.low = {2}, .high = {1}, .interior = {0}, .value = -3});
  pad("pad_interior", {3, 4}, {.low = {0, 1}, .high = {2, 0}, .interior = {2, 1}, .value = 0.5});
  pad("pad_nothing", {2, 2}, {.low = {0, 0}, .high = {0, 0}, .interior = {0, 0}});
  put("concatenate_rows", OpCode::concatenate, AxisAttrs{.axis = 0},
      {tensor({2, 3}), tensor({1, 3}), tensor({4, 3})});
  put("concatenate_columns", OpCode::concatenate, AxisAttrs{.axis = 1},
      {tensor({3, 2}), tensor({3, 5})});
  put("concatenate_one", OpCode::concatenate, AxisAttrs{.axis = 0}, {tensor({5})});
  const auto reverse = [&](const char* name, Shape from, Shape axes) {
    put(name, OpCode::reverse, AxesAttrs{.axes = std::move(axes)}, {tensor(std::move(from))});
  };
  reverse("reverse_1d", {5}, {0});
  reverse("reverse_rows", {8, 3}, {0});
  reverse("reverse_two", {4, 3, 7}, {2, 0});
  reverse("reverse_one", {2, 1}, {1});
  reverse("reverse_nothing", {3}, {});
}

namespace {

void add_windows(Cases& all) {
  const auto put = [&](const std::string& name, Shape from, WindowAttrs attrs) {
    for (const auto reduction :
         {WindowReduction::sum, WindowReduction::max, WindowReduction::min}) {
      attrs.reduction = reduction;
      const bool is_sum = reduction == WindowReduction::sum;
      all.push_back({.name = name + "_" + std::string(enum_name(reduction)),
                     .op = OpCode::reduce_window,
                     .attrs = attrs,
                     .operands = {tensor(from, is_sum ? Fill::normal : Fill::distinct)},
                     .tolerance = Tolerance::reduction});
    }
  };
  put("window_1d", {9}, {.window = {3}, .stride = {2}, .low = {1}, .high = {1}});
  put("window_2d", {6, 5}, {.window = {3, 2}, .stride = {1, 2}, .low = {0, 1}, .high = {2, 0}});
  put("window_channels", {2, 4, 4, 3},
      {.window = {1, 2, 2, 1}, .stride = {1, 2, 2, 1}, .low = {0, 0, 0, 0}, .high = {0, 0, 0, 0}});
  put("window_strides", {7, 4},
      {.window = {1, 4}, .stride = {3, 1}, .low = {0, 0}, .high = {0, 0}});
}

}  // namespace

void add_reductions(Cases& all) {
  add_windows(all);
  const auto put = [&](OpCode op, Shape from, Shape axes) {
    const Fill fill = op == OpCode::reduce_prod  ? Fill::positive
                      : op == OpCode::reduce_sum ? Fill::normal
                                                 : Fill::distinct;
    all.push_back({.name = std::string(op_def(op).name) + to_string(from) + to_string(axes),
                   .op = op,
                   .attrs = AxesAttrs{.axes = axes},
                   .operands = {tensor(from, fill)},
                   .tolerance = Tolerance::reduction});
  };
  for (const OpCode op :
       {OpCode::reduce_sum, OpCode::reduce_max, OpCode::reduce_min, OpCode::reduce_prod}) {
    put(op, {7}, {0});
    put(op, {3, 5}, {0});
    put(op, {3, 5}, {1});
    put(op, {3, 5}, {0, 1});
    put(op, {2, 3, 4}, {1});
    put(op, {2, 3, 4}, {0, 2});
    put(op, {9, 2, 17}, {0});
    put(op, {5, 3, 4}, {0, 1});
    put(op, {2, 1, 9}, {2});
    put(op, {4}, {});
  }
  const auto argmax = [&](const char* name, Shape from, int64_t axis) {
    all.push_back({.name = name,
                   .op = OpCode::argmax,
                   .attrs = AxisAttrs{.axis = axis},
                   .operands = {tensor(std::move(from), Fill::distinct)},
                   .tolerance = Tolerance::exact});
  };
  argmax("argmax_1d", {9}, 0);
  argmax("argmax_last", {4, 7}, 1);
  argmax("argmax_long", {3, 1500}, 1);
  argmax("argmax_first", {4, 7}, 0);
  for (const int64_t axis : {0, 1})
    all.push_back({.name = "argmin_" + std::to_string(axis),
                   .op = OpCode::argmin,
                   .attrs = AxisAttrs{.axis = axis},
                   .operands = {tensor({5, 9}, Fill::distinct)},
                   .tolerance = Tolerance::exact});
}

void add_lookups(Cases& all) {
  const auto put = putting(all, Tolerance::reduction);
  put("gather_rows", OpCode::gather, NoAttrs{}, {tensor({5, 3}), integers({7}, Fill::ids, 5)});
  put("gather_outside", OpCode::gather, NoAttrs{},
      {tensor({4, 2, 3}), integers({2, 5}, Fill::any_ids, 4)});
  put("gather_elements", OpCode::gather, NoAttrs{}, {tensor({6}), integers({}, Fill::ids, 6)});
  put("scatter_add_rows", OpCode::scatter_add, ScatterAddAttrs{.rows = 4},
      {tensor({7, 3}), integers({7}, Fill::ids, 4)});
  put("scatter_add_outside", OpCode::scatter_add, ScatterAddAttrs{.rows = 3},
      {tensor({2, 5, 2}), integers({2, 5}, Fill::any_ids, 3)});
  put("embedding_small", OpCode::embedding, NoAttrs{},
      {tensor({5, 4}), integers({9}, Fill::ids, 5)});
  put("embedding_ragged", OpCode::embedding, NoAttrs{},
      {tensor({11, 37}), integers({3}, Fill::any_ids, 11)});
  put("embedding_grad_small", OpCode::embedding_grad, ScatterAddAttrs{.rows = 5},
      {tensor({9, 4}), integers({9}, Fill::ids, 5)});
  put("embedding_grad_ragged", OpCode::embedding_grad, ScatterAddAttrs{.rows = 3},
      {tensor({33, 37}), integers({33}, Fill::any_ids, 3)});
}

}  // namespace octet::op_cases
