#include "backends/cuda/params/move.h"

#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/move.h"
#include "formats/codec.h"

namespace octet::cuda {
namespace {

ElementOp element_op(OpCode op) {
  switch (op) {
#define ELEMENT(op, ...) \
  case OpCode::op:       \
    return ElementOp::op;
#include "math/elementwise.def"
    case OpCode::select:
      return ElementOp::select;
    default:
      return ElementOp::copy;  // cast, stop_gradient
  }
}

// f32 arithmetic takes high-precision operands, and one factor in f32; the rest takes integers and
// bools too.
bool element_applies(const NodeView& view) {
  const ElementOp op = element_op(view.node.op);
  const auto fits = [wide = is_float_op(op) && op != ElementOp::copy](Dtype d) {
    return is_high_precision(d) || (!wide && (d == Dtype::i32 || d == Dtype::boolean));
  };
  bool all = fits(view.out(Select::y).dtype);
  for (size_t i = 0; i < view.node.operands.size(); ++i) all = all && fits(view.in(i).dtype);
  if (op != ElementOp::rescale) return all;
  const TensorType& factor = view.in(Rescale::factor);
  return all && factor.dtype == Dtype::f32 && factor.n_elems() == 1;
}

template <KernelId kKernel>
KernelSpec element_spec(const NodeView& view) {
  ElementParams p;
  p.n = view.out(Select::y).n_elems();
  p.op = element_op(view.node.op);
  p.n_operands = static_cast<uint8_t>(view.node.operands.size());
  const auto dtype = [&](SlotId operand) {
    return view.has(operand) ? view.in(operand).dtype : view.in(Unary::x).dtype;
  };
  p.a = dtype(Unary::x);
  p.b = dtype(Binary::b);
  p.c = dtype(Select::no);
  p.y = view.out(Select::y).dtype;
  return chosen_spec(kKernel, p);
}

// The bits of `value` in one element.
uint32_t pattern_of(Dtype dtype, double value) {
  if (dtype == Dtype::f32) return bits_of(static_cast<float>(value));
  if (is_float(dtype))
    return encode(dtype, static_cast<float>(value), Rounding::near, {.saturate = false});
  return static_cast<uint32_t>(static_cast<int64_t>(value));
}
FillParams fill_params(const TensorType& y, double value) {
  FillParams p;
  p.n = y.n_elems();
  p.bytes = static_cast<int32_t>(bytes_of(y.dtype, 1));
  p.pattern = pattern_of(y.dtype, value);
  return p;
}
bool moves(const NodeView& view) {
  const TensorType& y = view.out(Unary::y);
  bool same = y.shape.size() <= kMaxRank && y.dtype != Dtype::real;
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    same = same && view.in(i).dtype == y.dtype && view.in(i).shape.size() <= kMaxRank;
  }
  return same;
}
KernelSpec fill_spec(const NodeView& view) {
  return chosen_spec(KernelId::fill, fill_params(view.out(Make::y), view.attrs<FillAttrs>().value));
}

bool counts_in_i32(const NodeView& view) {
  return view.out(Make::y).dtype == Dtype::i32;
}
KernelSpec iota_spec(const NodeView& view) {
  const auto& a = view.attrs<IotaAttrs>();
  const auto axis = static_cast<size_t>(a.axis);
  return chosen_spec(KernelId::iota, IotaParams{.n = n_elems(a.shape),
                                                .extent = a.shape[axis],
                                                .inner = row_major_strides(a.shape)[axis]});
}

// A copy of `extent`, both sides as they lie.
StridedCopy whole_copy(const Shape& extent, const Shape& src_stride, const Shape& dst_stride) {
  StridedCopy copy;
  copy.rank = std::ssize(extent);
  std::copy(extent.begin(), extent.end(), copy.extent);
  std::copy(src_stride.begin(), src_stride.end(), copy.src_stride);
  std::copy(dst_stride.begin(), dst_stride.end(), copy.dst_stride);
  return copy;
}

// Axes of extent 1 dropped, neighbours joined where both sides allow.
StridedCopy simplified(const StridedCopy& copy) {
  StridedCopy result = copy;
  int64_t n = 0;
  for (int64_t k = 0; k < copy.rank; ++k) {
    if (copy.extent[k] == 1) continue;
    const bool joins = n > 0 && result.src_stride[n - 1] == copy.extent[k] * copy.src_stride[k] &&
                       result.dst_stride[n - 1] == copy.extent[k] * copy.dst_stride[k];
    const int64_t to = joins ? n - 1 : n++;
    result.extent[to] = (joins ? result.extent[to] : 1) * copy.extent[k];
    result.src_stride[to] = copy.src_stride[k];
    result.dst_stride[to] = copy.dst_stride[k];
  }
  result.rank = n;
  return result;
}

KernelSpec copy_spec(KernelId kernel, const FillParams& fill, std::span<StridedCopy> copies) {
  constexpr size_t kWords = sizeof(StridedCopy) / sizeof(int64_t);
  std::vector<int64_t> tail(copies.size() * kWords);
  for (StridedCopy& copy : copies) copy = simplified(copy);
  choose_kernels(fill, copies);
  std::memcpy(tail.data(), copies.data(), copies.size_bytes());
  KernelSpec spec = make_spec(kernel, CopyParams{std::ssize(copies), fill}, tail);
  spec.launches = launches_of(fill, copies);
  return spec;
}
KernelSpec one_copy(KernelId kernel, const NodeView& view, StridedCopy copy) {
  FillParams unfilled = fill_params(view.out(Unary::y), 0);
  unfilled.n = 0;
  return copy_spec(kernel, unfilled, {&copy, 1});
}

KernelSpec slice_spec(const NodeView& view) {
  const auto& attrs = view.attrs<SliceAttrs>();
  const Shape& y = view.out(Unary::y).shape;
  StridedCopy copy =
      whole_copy(y, row_major_strides(view.in(Unary::x).shape), row_major_strides(y));
  for (size_t k = 0; k < y.size(); ++k) {
    copy.src_start += attrs.start[k] * copy.src_stride[k];
    copy.src_stride[k] *= attrs.stride[k];
  }
  return one_copy(KernelId::slice, view, copy);
}

KernelSpec transpose_spec(const NodeView& view) {
  const TensorType &x = view.in(Unary::x), &y = view.out(Unary::y);
  const Shape strides = row_major_strides(x.stored_shape()), extent = y.stored_shape();
  Shape src;
  for (const int64_t axis : stored_perm(x, view.attrs<TransposeAttrs>().perm, y))
    src.push_back(strides[static_cast<size_t>(axis)]);
  return one_copy(KernelId::transpose, view, whole_copy(extent, src, row_major_strides(extent)));
}

KernelSpec broadcast_spec(const NodeView& view) {
  const auto& axes = view.attrs<BroadcastAttrs>().axes;
  const Shape strides = row_major_strides(view.in(Unary::x).shape);
  const Shape& y = view.out(Unary::y).shape;
  Shape src(y.size(), 0);
  for (size_t k = 0; k < axes.size(); ++k) src[static_cast<size_t>(axes[k])] = strides[k];
  return one_copy(KernelId::broadcast, view, whole_copy(y, src, row_major_strides(y)));
}

KernelSpec pad_spec(const NodeView& view) {
  const auto& attrs = view.attrs<PadAttrs>();
  const TensorType& y = view.out(Unary::y);
  const Shape& x = view.in(Unary::x).shape;
  StridedCopy copy = whole_copy(x, row_major_strides(x), row_major_strides(y.shape));
  for (size_t k = 0; k < x.size(); ++k) {
    copy.dst_start += attrs.low[k] * copy.dst_stride[k];
    copy.dst_stride[k] *= attrs.interior[k] + 1;
  }
  FillParams fill = fill_params(y, attrs.value);
  if (y.n_elems() == view.in(Unary::x).n_elems()) fill.n = 0;
  return copy_spec(KernelId::pad, fill, {&copy, 1});
}

KernelSpec concatenate_spec(const NodeView& view) {
  const auto axis = static_cast<size_t>(view.attrs<AxisAttrs>().axis);
  const Shape dst = row_major_strides(view.out(Concatenate::y).shape);
  std::vector<StridedCopy> copies;
  int64_t start = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    const Shape& x = view.in(i).shape;
    copies.push_back(whole_copy(x, row_major_strides(x), dst));
    copies.back().operand = static_cast<int32_t>(i);
    copies.back().dst_start = start * dst[axis];
    start += x[axis];
  }
  FillParams unfilled = fill_params(view.out(Concatenate::y), 0);
  unfilled.n = 0;
  return copy_spec(KernelId::concatenate, unfilled, copies);
}

// Elements of two or four bytes.
bool cache_write_applies(const NodeView& view) {
  return is_high_precision(view.in(CacheWrite::cache).dtype);
}
KernelSpec cache_write_spec(const NodeView& view) {
  const auto& a = view.attrs<CacheAttrs>();
  const TensorType& x = view.in(CacheWrite::x);
  const CacheWriteParams p{.batch = a.batch,
                           .capacity = a.capacity,
                           .rows = x.shape[0] / a.batch,
                           .row_bytes = bytes_of(x.dtype, x.shape[1])};
  return chosen_spec(KernelId::cache_write, p);
}

bool axpby_applies(const NodeView& view) {
  using S = Axpby;
  return is_high_precision(view.in(S::a).dtype) && is_high_precision(view.in(S::b).dtype) &&
         is_high_precision(view.out(S::y).dtype) && view.in(S::factor_a).dtype == Dtype::f32 &&
         view.in(S::factor_b).dtype == Dtype::f32;
}
KernelSpec axpby_spec(const NodeView& view) {
  const AxpbyParams p{.n = view.out(Axpby::y).n_elems(),
                      .a = view.in(Axpby::a).dtype,
                      .b = view.in(Axpby::b).dtype,
                      .y = view.out(Axpby::y).dtype};
  return chosen_spec(KernelId::axpby, p);
}

const Binding kMoveBindings[] = {
#define ELEMENT(op, ...) \
  {{OpCode::op, "elements", element_applies}, element_spec<KernelId::elementwise>},
#include "math/elementwise.def"
    {{OpCode::select, "elements", element_applies}, element_spec<KernelId::elementwise>},
    {{OpCode::cast, "elements", element_applies}, element_spec<KernelId::cast>},
    {{OpCode::stop_gradient, "elements", element_applies}, element_spec<KernelId::elementwise>},
    {{OpCode::axpby, "elements", axpby_applies}, axpby_spec},
    {{OpCode::fill, "elements", moves}, fill_spec},
    {{OpCode::iota, "elements", counts_in_i32}, iota_spec},
    {{OpCode::slice, "copy", moves}, slice_spec},
    {{OpCode::transpose, "copy", moves}, transpose_spec},
    {{OpCode::broadcast, "copy", moves}, broadcast_spec},
    {{OpCode::pad, "copy", moves}, pad_spec},
    {{OpCode::concatenate, "copy", moves}, concatenate_spec},
    {{.op = OpCode::cache_write,
      .name = "copy",
      .applies = cache_write_applies,
      .may_join = always},
     cache_write_spec},
};

}  // namespace

std::span<const Binding> move_bindings() {
  return kMoveBindings;
}

}  // namespace octet::cuda
