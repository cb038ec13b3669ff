// Sums of everything and of the leading axes, and the places of rows' maxima.
#include <cmath>

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/reference/reference.h"

namespace octet::cpu {
namespace {

bool sums_all(const NodeView& view) {
  return is_f32_or_bf16(view.in(Unary::x).dtype) && view.out(Unary::y).dtype == Dtype::f32 &&
         view.out(Unary::y).n_elems() == 1;
}
int64_t sum_scratch(const NodeView& view) {
  return reduce_scratch(view.in(Unary::x).n_elems()) * static_cast<int64_t>(sizeof(double));
}
LaunchFn prepare_sum(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), n = view.in(Unary::x).n_elems(),
          &pool = context.pool](const LaunchArgs& args) {
    *data_out<float>(args, Unary::y) = static_cast<float>(
        sum(types.operand(args, Unary::x), n, reinterpret_cast<double*>(args.scratch), pool));
  };
}

// What is left is a row, and what vanishes counts the rows.
RowShape columns_of(const NodeView& view) {
  const int64_t cols = view.out(Unary::y).n_elems();
  return {.rows = cols == 0 ? 0 : view.in(Unary::x).n_elems() / cols, .cols = cols};
}
bool sums_leading_axes(const NodeView& view) {
  const Shape& axes = view.attrs<AxesAttrs>().axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(i)) return false;
  }
  return !axes.empty() && all_f32_or_bf16(view) && columns_of(view).rows > 0;
}
int64_t columns_scratch(const NodeView& view) {
  return float_bytes(norm_backward_scratch(columns_of(view), 1));
}
LaunchFn prepare_columns(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), shape = columns_of(view),
          &pool = context.pool](const LaunchArgs& args) {
    column_sum(types.operand(args, Unary::x), types.result(args, Unary::y), scratch_of(args), shape,
               pool);
  };
}

// Of the last axis, which has something.
bool finds_in_rows(const NodeView& view) {
  const Shape& shape = view.in(Unary::x).shape;
  return view.attrs<AxisAttrs>().axis == static_cast<int64_t>(shape.size()) - 1 &&
         shape.back() > 0 && is_f32_or_bf16(view.in(Unary::x).dtype);
}
// The first of the largest; a NaN is above everything.
LaunchFn prepare_argmax(const NodeView& view, Context& context) {
  return [dtype = view.in(Unary::x).dtype, shape = rows_of(view.in(Unary::x)),
          &pool = context.pool](const LaunchArgs& args) {
    constexpr int64_t kPiece = 1024;
    const std::byte* x = args.operands[0];
    auto* y = data_out<int32_t>(args, Unary::y);
    for_blocks(pool, shape.rows, 1, [&](int64_t row, int64_t, int) {
      double numbers[kPiece], best = 0;
      int64_t at = -1;
      for (int64_t begin = 0; begin < shape.cols && !std::isnan(best); begin += kPiece) {
        const int64_t n = std::min(kPiece, shape.cols - begin);
        reference::load(dtype, x + bytes_of(dtype, row * shape.cols + begin),
                        {numbers, static_cast<size_t>(n)});
        for (int64_t i = 0; i < n; ++i) {
          if (at >= 0 && (numbers[i] <= best || std::isnan(best))) continue;
          best = numbers[i];
          at = begin + i;
        }
      }
      y[row] = static_cast<int32_t>(at);
    });
  };
}

const Binding kReduceBindings[] = {
    {{OpCode::reduce_sum, "simd", sums_all, sum_scratch}, prepare_sum},
    {{OpCode::reduce_sum, "columns", sums_leading_axes, columns_scratch}, prepare_columns},
    {{OpCode::argmax, "rows", finds_in_rows}, prepare_argmax},
};

}  // namespace

std::span<const Binding> reduce_bindings() {
  return kReduceBindings;
}

}  // namespace octet::cpu
