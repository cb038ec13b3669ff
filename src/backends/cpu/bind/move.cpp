#include "backends/cpu/elementwise/move.h"

#include <array>

#include "backends/cpu/bind/launch.h"
#include "backends/cpu/elementwise/elementwise.h"
#include "backends/cpu/reference/reference.h"
#include "base/bytes.h"

namespace octet::cpu {
namespace {

// Every operand has the result's dtype, of a size that moves.
bool moves(const NodeView& view) {
  const Dtype dtype = view.out(Unary::y).dtype;
  const int64_t bytes = bytes_of(dtype, 1);
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (view.in(i).dtype != dtype) return false;
  }
  return bytes == 1 || bytes == 2 || bytes == 4;
}

LaunchFn launch_copy(const NodeView& view, const StridedCopy& copy, Context& context) {
  return launcher(
      view, context,
      [copy = simplified(copy), bytes = bytes_of(view.out(Unary::y).dtype, 1)](const Call& call) {
        copy_strided(copy, call.args.operands[Unary::x], call.args.results[Unary::y], bytes,
                     call.pool);
      });
}

LaunchFn prepare_slice(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<SliceAttrs>();
  StridedCopy copy{.extent = view.out(Unary::y).shape,
                   .src_stride = row_major_strides(view.in(Unary::x).shape),
                   .dst_stride = row_major_strides(view.out(Unary::y).shape)};
  for (size_t k = 0; k < copy.extent.size(); ++k) {
    copy.src_start += attrs.start[k] * copy.src_stride[k];
    copy.src_stride[k] *= attrs.stride[k];
  }
  return launch_copy(view, copy, context);
}

LaunchFn prepare_transpose(const NodeView& view, Context& context) {
  const TensorType &x = view.in(Unary::x), &y = view.out(Unary::y);
  const Shape strides = row_major_strides(x.stored_shape());
  StridedCopy copy{.extent = y.stored_shape(), .dst_stride = row_major_strides(y.stored_shape())};
  for (const int64_t axis : stored_perm(x, view.attrs<TransposeAttrs>().perm, y))
    copy.src_stride.push_back(strides[static_cast<size_t>(axis)]);
  return launch_copy(view, copy, context);
}

LaunchFn prepare_broadcast(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<BroadcastAttrs>();
  const Shape strides = row_major_strides(view.in(Unary::x).shape);
  StridedCopy copy{.extent = view.out(Unary::y).shape,
                   .src_stride = Shape(view.out(Unary::y).shape.size(), 0),
                   .dst_stride = row_major_strides(view.out(Unary::y).shape)};
  for (size_t k = 0; k < attrs.axes.size(); ++k) {
    copy.src_stride[static_cast<size_t>(attrs.axes[k])] = strides[k];
  }
  return launch_copy(view, copy, context);
}

LaunchFn prepare_pad(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<PadAttrs>();
  const TensorType& y = view.out(Unary::y);
  StridedCopy copy{.extent = view.in(Unary::x).shape,
                   .src_stride = row_major_strides(view.in(Unary::x).shape),
                   .dst_stride = row_major_strides(y.shape)};
  for (size_t k = 0; k < copy.extent.size(); ++k) {
    copy.dst_start += attrs.low[k] * copy.dst_stride[k];
    copy.dst_stride[k] *= attrs.interior[k] + 1;
  }
  std::array<std::byte, 4> element{};
  reference::store(y.dtype, {&attrs.value, 1}, element.data());
  return launcher(
      view, context,
      [copy = simplified(copy), element, bytes = bytes_of(y.dtype, 1),
       n = y.n_elems()](const Call& call) {
        fill_elements(call.args.results[Unary::y], n, {element.data(), bytes}, call.pool);
        copy_strided(copy, call.args.operands[Unary::x], call.args.results[Unary::y], bytes,
                     call.pool);
      });
}

LaunchFn prepare_concatenate(const NodeView& view, Context& context) {
  const auto axis = static_cast<size_t>(view.attrs<AxisAttrs>().axis);
  const TensorType& y = view.out(Concatenate::y);
  const Shape dst_stride = row_major_strides(y.shape);
  std::vector<StridedCopy> copies;
  int64_t start = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    const Shape& shape = view.in(i).shape;
    copies.push_back(simplified({.dst_start = start * dst_stride[axis],
                                 .extent = shape,
                                 .src_stride = row_major_strides(shape),
                                 .dst_stride = dst_stride}));
    start += shape[axis];
  }
  return launcher(view, context, [copies, bytes = bytes_of(y.dtype, 1)](const Call& call) {
    for (size_t i = 0; i < copies.size(); ++i) {
      copy_strided(copies[i], call.args.operands[i], call.args.results[Concatenate::y], bytes,
                   call.pool);
    }
  });
}

bool selects(const NodeView& view) {
  const int64_t bytes = bytes_of(view.out(Select::y).dtype, 1);
  return view.in(Select::yes).dtype == view.out(Select::y).dtype &&
         view.in(Select::no).dtype == view.out(Select::y).dtype &&
         (bytes == 1 || bytes == 2 || bytes == 4);
}

LaunchFn prepare_select(const NodeView& view, Context& context) {
  const TensorType& y = view.out(Select::y);
  return launcher(view, context, [bytes = bytes_of(y.dtype, 1), n = y.n_elems()](const Call& call) {
    select({.condition = call.data<uint8_t>(Select::condition),
            .yes = call.args.operands[Select::yes],
            .no = call.args.operands[Select::no],
            .y = call.args.results[Select::y],
            .bytes = bytes},
           n, call.pool);
  });
}

bool writes_same_type(const NodeView& view) {
  return view.in(CacheWrite::cache).dtype == view.out(CacheWrite::next_cache).dtype;
}

LaunchFn prepare_cache_write(const NodeView& view, Context& context) {
  const auto& attrs = view.attrs<CacheAttrs>();
  const TensorType& x = view.in(CacheWrite::x);
  const int64_t rows = x.shape[0], per_entry = rows / attrs.batch;
  const int64_t row_bytes = bytes_of(x.dtype, x.shape[1]);
  const int64_t cache_bytes = view.in(CacheWrite::cache).n_bytes();
  return launcher(view, context, [=, capacity = attrs.capacity](const Call& call) {
    const auto* from = call.data<std::byte>(CacheWrite::x);
    const auto* positions = call.data<int32_t>(CacheWrite::positions);
    auto* to = call.result<std::byte>(CacheWrite::next_cache);
    copy_bytes(to, call.data<std::byte>(CacheWrite::cache), cache_bytes);
    for_tiles(call.pool, rows, [&](int64_t r, int) {
      const int64_t position = positions[r];
      if (position < 0 || position >= capacity) return;
      copy_bytes(to + (r / per_entry * capacity + position) * row_bytes, from + r * row_bytes,
                 row_bytes);
    });
  });
}

const Binding kMoveBindings[] = {
    {{OpCode::cache_write, "simd", writes_same_type}, prepare_cache_write},
    {{OpCode::select, "simd", selects}, prepare_select},
    {{OpCode::slice, "simd", moves}, prepare_slice},
    {{OpCode::transpose, "simd", moves}, prepare_transpose},
    {{OpCode::broadcast, "simd", moves}, prepare_broadcast},
    {{OpCode::pad, "simd", moves}, prepare_pad},
    {{OpCode::concatenate, "simd", moves}, prepare_concatenate},
};

}  // namespace

std::span<const Binding> move_bindings() {
  return kMoveBindings;
}

}  // namespace octet::cpu
