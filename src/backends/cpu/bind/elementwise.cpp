// Elementwise ops, sums of everything and over rows, and the places of rows' maxima.
#include "backends/cpu/elementwise/elementwise.h"

#include <cmath>

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/norm/norm.h"
#include "backends/cpu/reference/reference.h"

namespace octet::cpu {

int64_t reduce_bytes(const NodeView& view) {
  int64_t largest = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (view.has(i)) largest = std::max(largest, reduce_scratch(view.in(i).n_elems()));
  }
  return largest * static_cast<int64_t>(sizeof(double));
}

bool all_f32_or_bf16(const NodeView& view) {
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (view.has(i) && !is_f32_or_bf16(view.in(i).dtype)) return false;
  }
  for (size_t i = 0; i < own_results(view); ++i) {
    if (view.gives(i) && !is_f32_or_bf16(view.out(i).dtype)) return false;
  }
  return true;
}

namespace {

bool in_lanes(const NodeView& view) {
  return has_lanes(view.node.op) && all_f32_or_bf16(view);
}
LaunchFn prepare_lanes(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [op = view.node.op, n = view.out(Binary::y).n_elems()](const Call& call) {
                    elementwise({op, call.in(Binary::a), call.in(Binary::b), call.out(Binary::y)},
                                n, call.pool);
                  });
}

// Ops that no vectors compute: the reference's function of a piece at a time, with its bits.
bool in_doubles(const NodeView& view) {
  return !has_lanes(view.node.op);
}
// Bools of floats; of integers in doubles.
bool compares_in_lanes(const NodeView& view) {
  return has_lanes(view.node.op) && is_f32_or_bf16(view.in(Binary::a).dtype) &&
         is_f32_or_bf16(view.in(Binary::b).dtype);
}
LaunchFn prepare_doubles(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [kernel = reference::kernel(view.node.op),
       n = view.out(Binary::y).n_elems()](const Call& call) {
        constexpr int64_t kPiece = 1024;
        for_blocks(call.pool, n, kPiece, [&](int64_t begin, int64_t end, int) {
          double numbers[3][kPiece];
          const auto n_elems = static_cast<size_t>(end - begin);
          reference::RefTensor in[2], out[1] = {{.type = {}, .data = {numbers[2], n_elems}}};
          for (size_t i = 0; i < call.types.in.size(); ++i) {
            in[i].data = {numbers[i], n_elems};
            const In x = offset(call.in(i), begin);
            reference::load(x.dtype, static_cast<const std::byte*>(x.data), in[i].data);
          }
          kernel({.attrs = call.node_attrs, .in = in, .out = out});
          const Out y = offset(call.out(Binary::y), begin);
          reference::store(y.dtype, out[0].data, static_cast<std::byte*>(y.data));
        });
      });
}

// kLaunch(call, n), n the elements of the result.
template <void (*kLaunch)(const Call& call, int64_t n)>
LaunchFn prepare_elements(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [n = view.out(0).n_elems()](const Call& call) { kLaunch(call, n); });
}

void launch_cast(const Call& call, int64_t n) {
  cast(call.in(Unary::x), call.out(Unary::y), n, call.pool);
}

// In f32, one rounding; by one factor. Others are broadcast and multiplied.
void launch_rescale(const Call& call, int64_t n) {
  scaled_sum({.a = call.in(Rescale::x),
              .y = call.out(Rescale::y),
              .alpha = *call.data<float>(Rescale::factor)},
             n, call.pool);
}
bool rescale_applies(const NodeView& view) {
  return all_f32_or_bf16(view) && view.in(Rescale::factor).dtype == Dtype::f32 &&
         view.in(Rescale::factor).n_elems() == 1;
}

void launch_axpby(const Call& call, int64_t n) {
  scaled_sum({.a = call.in(Axpby::a),
              .b = call.in(Axpby::b),
              .y = call.out(Axpby::y),
              .alpha = *call.data<float>(Axpby::factor_a),
              .beta = *call.data<float>(Axpby::factor_b)},
             n, call.pool);
}
bool axpby_applies(const NodeView& view) {
  return all_f32_or_bf16(view) && view.in(Axpby::factor_a).dtype == Dtype::f32 &&
         view.in(Axpby::factor_b).dtype == Dtype::f32;
}

void launch_fill(const Call& call, int64_t n) {
  fill(call.out(Make::y), static_cast<float>(call.attrs<FillAttrs>().value), n, call.pool);
}

// Forward it rounds to the nearest value of a format, as encoding with that format's overflow does.
bool cast_in_applies(const NodeView& view) {
  return view.in(Unary::x).dtype == Dtype::f32 && view.out(Unary::y).dtype == Dtype::f32;
}
void launch_cast_in(const Call& call, int64_t n) {
  const auto& [dtype, direction] = call.attrs<CastInAttrs>();
  if (direction != Direction::forward || dtype == Dtype::f32) return launch_cast(call, n);
  visit_format(dtype, [&]<Dtype D>() {
    constexpr EncodeOptions kOverflow{.saturate = !format_row(D).has_inf};
    const auto* x = call.data<float>(Unary::x);
    auto* y = call.result<float>(Unary::y);
    for_blocks(call.pool, n, kBlockElems, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        y[i] = decode<D>(encode<D>(x[i], Rounding::near, kOverflow));
    });
  });
}

LaunchFn prepare_bias_add(const NodeView& view, Context& context) {
  return launcher(view, context, [shape = rows_of(view.in(BiasAdd::x))](const Call& call) {
    add_bias(call.in(BiasAdd::x), call.in(BiasAdd::bias), call.out(BiasAdd::y), shape, call.pool);
  });
}

// Sums over rows: kRows says what they are.
template <RowShape (*kRows)(const NodeView&)>
int64_t columns_scratch(const NodeView& view) {
  return float_bytes(norm_backward_scratch(kRows(view), 1));
}
template <RowShape (*kRows)(const NodeView&)>
LaunchFn prepare_columns(const NodeView& view, Context& context) {
  return launcher(view, context, [shape = kRows(view)](const Call& call) {
    column_sum(call.in(Unary::x), call.out(Unary::y), call.scratch<float>(), shape, call.pool);
  });
}

// All but the last axis.
RowShape rows_of_matrix(const NodeView& view) {
  return rows_of(view.in(Unary::x));
}
// Axes that are left make a row, and those that vanish count the rows.
RowShape rows_that_vanish(const NodeView& view) {
  const int64_t cols = view.out(Unary::y).n_elems();
  return {.rows = cols == 0 ? 0 : view.in(Unary::x).n_elems() / cols, .cols = cols};
}
bool sums_leading_axes(const NodeView& view) {
  const Shape& axes = view.attrs<AxesAttrs>().axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(i)) return false;
  }
  return !axes.empty() && all_f32_or_bf16(view) && rows_that_vanish(view).rows > 0;
}

// The axes that vanish are the last ones, what is left counts rows.
bool sums_trailing_axes(const NodeView& view) {
  const Shape& axes = view.attrs<AxesAttrs>().axes;
  const size_t n_left = view.in(Unary::x).shape.size() - axes.size();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(n_left + i)) return false;
  }
  return !axes.empty() && is_f32_or_bf16(view.in(Unary::x).dtype) &&
         view.out(Unary::y).dtype == Dtype::f32 && view.out(Unary::y).n_elems() > 0;
}
LaunchFn prepare_row_sums(const NodeView& view, Context& context) {
  const int64_t rows = view.out(Unary::y).n_elems();
  const RowShape shape{.rows = rows, .cols = view.in(Unary::x).n_elems() / rows};
  return launcher(view, context, [shape](const Call& call) {
    row_sums(call.in(Unary::x), call.result<float>(Unary::y), shape, call.pool);
  });
}

bool sums_all(const NodeView& view) {
  return is_f32_or_bf16(view.in(Unary::x).dtype) && view.out(Unary::y).dtype == Dtype::f32 &&
         view.out(Unary::y).n_elems() == 1;
}
LaunchFn prepare_sum(const NodeView& view, Context& context) {
  return launcher(view, context, [n = view.in(Unary::x).n_elems()](const Call& call) {
    *call.result<float>(Unary::y) =
        static_cast<float>(sum(call.in(Unary::x), n, call.scratch<double>(), call.pool));
  });
}

// True for the last axis, which has something.
bool finds_in_rows(const NodeView& view) {
  const Shape& shape = view.in(Unary::x).shape;
  return view.attrs<AxisAttrs>().axis == static_cast<int64_t>(shape.size()) - 1 &&
         shape.back() > 0 && is_f32_or_bf16(view.in(Unary::x).dtype);
}
// The first of the largest; a NaN is above everything.
LaunchFn prepare_argmax(const NodeView& view, Context& context) {
  return launcher(view, context, [shape = rows_of(view.in(Unary::x))](const Call& call) {
    constexpr int64_t kPiece = 1024;
    auto* y = call.result<int32_t>(Unary::y);
    for_blocks(call.pool, shape.rows, 1, [&](int64_t row, int64_t, int) {
      double numbers[kPiece], best = 0;
      int64_t at = -1;
      for (int64_t begin = 0; begin < shape.cols && !std::isnan(best); begin += kPiece) {
        const int64_t n = std::min(kPiece, shape.cols - begin);
        const In x = offset(call.in(Unary::x), row * shape.cols + begin);
        reference::load(x.dtype, static_cast<const std::byte*>(x.data),
                        {numbers, static_cast<size_t>(n)});
        for (int64_t i = 0; i < n; ++i) {
          if (at >= 0 && (numbers[i] <= best || std::isnan(best))) continue;
          best = numbers[i];
          at = begin + i;
        }
      }
      y[row] = static_cast<int32_t>(at);
    });
  });
}

const Binding kElementwiseBindings[] = {
#define ROWS_unary(op)                             \
  {{OpCode::op, "simd", in_lanes}, prepare_lanes}, \
      {{OpCode::op, "doubles", in_doubles}, prepare_doubles},
#define ROWS_binary ROWS_unary
#define ROWS_compare(op)                                    \
  {{OpCode::op, "simd", compares_in_lanes}, prepare_lanes}, \
      {{OpCode::op, "doubles", always}, prepare_doubles},
#define ROWS_scaled(op) {{OpCode::op, "simd", rescale_applies}, prepare_elements<launch_rescale>},
#define ELEMENT(op, arity, ...) ROWS_##arity(op)
#include "math/elementwise.def"
    {{OpCode::axpby, "simd", axpby_applies}, prepare_elements<launch_axpby>},
    {{OpCode::cast_in, "simd", cast_in_applies}, prepare_elements<launch_cast_in>},
    {{OpCode::cast, "simd", all_f32_or_bf16}, prepare_elements<launch_cast>},
    {{OpCode::stop_gradient, "simd", all_f32_or_bf16}, prepare_elements<launch_cast>},
    {{OpCode::fill, "simd", all_f32_or_bf16}, prepare_elements<launch_fill>},
    {{OpCode::bias_add, "simd", all_f32_or_bf16}, prepare_bias_add},
    {{OpCode::column_sum, "simd", all_f32_or_bf16, columns_scratch<rows_of_matrix>},
     prepare_columns<rows_of_matrix>},
    {{OpCode::reduce_sum, "simd", sums_all, reduce_bytes}, prepare_sum},
    {{OpCode::reduce_sum, "columns", sums_leading_axes, columns_scratch<rows_that_vanish>},
     prepare_columns<rows_that_vanish>},
    {{OpCode::reduce_sum, "rows", sums_trailing_axes}, prepare_row_sums},
    {{OpCode::argmax, "rows", finds_in_rows}, prepare_argmax},
};

}  // namespace

std::span<const Binding> elementwise_bindings() {
  return kElementwiseBindings;
}

}  // namespace octet::cpu
