// Primitives that reduce or contract.
#include "backends/cuda/params/reduce.h"

#include <algorithm>

#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/reduce.h"

namespace octet::cuda {
namespace {

bool holds(const Shape& axes, size_t axis) {
  return std::find(axes.begin(), axes.end(), static_cast<int64_t>(axis)) != axes.end();
}

// These axes of a row-major tensor; neighbours that lie one behind the other are joined.
AxisList list_of(const Shape& shape, const Shape& axes) {
  const Shape strides = row_major_strides(shape);
  AxisList list;
  for (const int64_t axis : axes) {
    const int64_t extent = shape[static_cast<size_t>(axis)];
    const int64_t stride = strides[static_cast<size_t>(axis)];
    if (extent == 1) continue;
    const bool joins = list.rank > 0 && list.stride[list.rank - 1] == extent * stride;
    const int64_t to = joins ? list.rank - 1 : list.rank++;
    list.extent[to] = (joins ? list.extent[to] : 1) * extent;
    list.stride[to] = stride;
  }
  return list;
}

int64_t count_of(const Shape& shape, const Shape& axes) {
  int64_t n = 1;
  for (const int64_t axis : axes) n *= shape[static_cast<size_t>(axis)];
  return n;
}

Shape axes_without(size_t rank, const Shape& left_out) {
  Shape axes;
  for (size_t i = 0; i < rank; ++i) {
    if (!holds(left_out, i)) axes.push_back(static_cast<int64_t>(i));
  }
  return axes;
}

Shape gone_axes(const NodeView& view) {
  if (const auto* one = std::get_if<AxisAttrs>(&view.node.attrs)) return {one->axis};
  Shape axes = view.attrs<AxesAttrs>().axes;
  std::sort(axes.begin(), axes.end());
  return axes;
}

bool fits(const TensorType& type) {
  return is_high_precision(type.dtype) && type.shape.size() <= kMaxRank;
}

bool reduce_applies(const NodeView& view) {
  return fits(view.in(Unary::x)) && is_high_precision(view.out(Unary::y).dtype);
}
bool argmax_applies(const NodeView& view) {
  return fits(view.in(Unary::x)) && view.out(Unary::y).dtype == Dtype::i32;
}

// kPiece: the fewest elements of a sum or maximum that are worth a block.
template <int64_t kPiece>
ReduceParams reduce_params(const NodeView& view) {
  const TensorType& x = view.in(Unary::x);
  const Shape gone = gone_axes(view), kept = axes_without(x.shape.size(), gone);
  ReduceParams p;
  p.n_kept = count_of(x.shape, kept);
  p.n_gone = count_of(x.shape, gone);
  p.least_piece = kPiece;
  p.kept = list_of(x.shape, kept);
  p.gone = list_of(x.shape, gone);
  p.x = x.dtype;
  p.y = view.out(Unary::y).dtype;
  return p;
}

template <int64_t kPiece>
int64_t reduce_scratch(const NodeView& view) {
  return reduce_scratch_bytes(reduce_params<kPiece>(view));
}
template <KernelId kKernel, int64_t kPiece>
KernelSpec reduce_spec(const NodeView& view) {
  return chosen_spec(kKernel, reduce_params<kPiece>(view));
}
template <KernelId kKernel, int64_t kPiece>
constexpr Binding reduce_row(OpCode op, bool (*applies)(const NodeView&)) {
  return {{op, "reduce", applies, reduce_scratch<kPiece>}, reduce_spec<kKernel, kPiece>};
}

bool dot_applies(const NodeView& view) {
  return fits(view.in(Binary::a)) && fits(view.in(Binary::b)) &&
         is_high_precision(view.out(Binary::y).dtype);
}

KernelSpec dot_spec(const NodeView& view) {
  const auto& attrs = view.attrs<DotAttrs>();
  const TensorType &a = view.in(Binary::a), &b = view.in(Binary::b);
  const auto free_axes = [](const TensorType& type, Shape batch, const Shape& deep) {
    batch.insert(batch.end(), deep.begin(), deep.end());
    return axes_without(type.shape.size(), batch);
  };
  const Shape a_free = free_axes(a, attrs.batch_a, attrs.contract_a);
  const Shape b_free = free_axes(b, attrs.batch_b, attrs.contract_b);
  DotParams p;
  p.batch = count_of(a.shape, attrs.batch_a);
  p.m = count_of(a.shape, a_free);
  p.n = count_of(b.shape, b_free);
  p.k = count_of(a.shape, attrs.contract_a);
  p.a_batch = list_of(a.shape, attrs.batch_a);
  p.b_batch = list_of(b.shape, attrs.batch_b);
  p.a_free = list_of(a.shape, a_free);
  p.b_free = list_of(b.shape, b_free);
  p.a_deep = list_of(a.shape, attrs.contract_a);
  p.b_deep = list_of(b.shape, attrs.contract_b);
  p.a = a.dtype;
  p.b = b.dtype;
  p.y = view.out(Binary::y).dtype;
  return chosen_spec(KernelId::dot, p);
}

const Binding kReduceBindings[] = {
    reduce_row<KernelId::reduce_sum, kSumPiece>(OpCode::reduce_sum, reduce_applies),
    reduce_row<KernelId::reduce_max, kMaxPiece>(OpCode::reduce_max, reduce_applies),
    reduce_row<KernelId::argmax, kMaxPiece>(OpCode::argmax, argmax_applies),
    {{.op = OpCode::dot, .name = "products", .applies = dot_applies, .facts = {.generic = true}},
     dot_spec},
};

}  // namespace

std::span<const Binding> reduce_bindings() {
  return kReduceBindings;
}

}  // namespace octet::cuda
