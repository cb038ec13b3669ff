// Windows of pictures, and batch norm.
#include "backends/cuda/params/pictures.h"

#include "backends/cuda/target/bind/rows.h"
#include "backends/cuda/target/choose/loss.h"

namespace octet::cuda {
namespace {

WindowAxis axis_of(const UnfoldAttrs& a, size_t i) {
  const auto narrow = [](int64_t n) { return static_cast<int32_t>(n); };
  return {.picture = narrow(a.picture[i]),
          .window = narrow(a.window[i]),
          .stride = narrow(a.stride[i]),
          .dilation = narrow(a.dilation[i]),
          .low = narrow(a.low[i]),
          .n_windows = narrow(a.n_windows(i))};
}

// Places of pictures and of windows fit 32 bits with room to spare, and a row of windows too.
bool counts_fit(const UnfoldAttrs& a, int64_t channels) {
  constexpr int64_t kMax = int64_t{1} << 29;
  int64_t n_of_row = channels;
  for (const int64_t n : {a.n_windows(1), a.window[0], a.window[1]}) {
    if (__builtin_mul_overflow(n_of_row, n, &n_of_row)) return false;
  }
  bool all = n_of_row < kMax;
  for (const size_t i : {0, 1}) {
    const int64_t extent = (a.window[i] - 1) * a.dilation[i] + 1;
    all = all && a.picture[i] + a.low[i] + a.high[i] < kMax && extent < kMax &&
          a.stride[i] < kMax && a.dilation[i] < kMax;
  }
  return all;
}

UnfoldParams unfold_params(const NodeView& view, const TensorType& pictures) {
  const auto& a = view.attrs<UnfoldAttrs>();
  return {.n_pictures = pictures.shape[0],
          .channels = pictures.shape[3],
          .rows = axis_of(a, 0),
          .columns = axis_of(a, 1),
          .bytes = static_cast<int32_t>(bytes_of(view.in(Unary::x).dtype, 1)),
          .x = view.in(Unary::x).dtype,
          .y = view.out(Unary::y).dtype};
}

bool unfold_applies(const NodeView& view) {
  const TensorType& x = view.in(Unary::x);
  return x.dtype == view.out(Unary::y).dtype && counts_fit(view.attrs<UnfoldAttrs>(), x.shape[3]);
}
KernelSpec unfold_spec(const NodeView& view) {
  const UnfoldParams p = unfold_params(view, view.in(Unary::x));
  return launching(make_spec(KernelId::unfold, p), launches_of(Direction::forward, p));
}

bool fold_applies(const NodeView& view) {
  const TensorType& y = view.out(Unary::y);
  return is_high_precision(view.in(Unary::x).dtype) && is_high_precision(y.dtype) &&
         counts_fit(view.attrs<UnfoldAttrs>(), y.shape[3]);
}
KernelSpec fold_spec(const NodeView& view) {
  const UnfoldParams p = unfold_params(view, view.out(Unary::y));
  return launching(make_spec(KernelId::fold, p), launches_of(Direction::backward, p));
}

DepthwiseParams depthwise_params(const NodeView& view) {
  const auto& [a, role] = view.attrs<ConvolutionAttrs>();
  const Shape& first = view.in(Binary::a).shape;
  const int64_t n_windows = a.n_windows(0) * a.n_windows(1);
  const int64_t n_each = role == GemmRole::forward ? a.picture[0] * a.picture[1] : n_windows;
  return {.n_pictures = first[0] / n_each,
          .channels = first[1],
          .rows = axis_of(a, 0),
          .columns = axis_of(a, 1),
          .first = view.in(Binary::a).dtype,
          .second = view.in(Binary::b).dtype,
          .result = view.out(Binary::y).dtype,
          .is_gradient = role == GemmRole::dgrad};
}
// Pixels of all pictures fit 31 bits, and the weights of a block's channels its shared memory.
bool depthwise_fits(const NodeView& view) {
  const auto& a = view.attrs<ConvolutionAttrs>().windows;
  const DepthwiseParams p = depthwise_params(view);
  constexpr int64_t kMax = int64_t{1} << 31;
  constexpr int64_t kMaxChannels = 65535 * 8;  // blocks of at least 8 along a grid's y
  int64_t n_pixels = 0, n_windows = 0;
  if (p.n_pictures < 1 || p.channels < 1 || p.channels > kMaxChannels ||
      !counts_fit(a, p.channels) ||
      __builtin_mul_overflow(a.picture[0] * a.picture[1], p.n_pictures, &n_pixels) ||
      __builtin_mul_overflow(a.n_windows(0) * a.n_windows(1), p.n_pictures, &n_windows))
    return false;
  return n_pixels < kMax && n_windows < kMax &&
         a.window[0] * a.window[1] * 8 <= kDepthwiseSharedFloats && is_high_precision(p.first) &&
         is_high_precision(p.second) && is_high_precision(p.result);
}
bool depthwise_applies(const NodeView& view) {
  return view.attrs<ConvolutionAttrs>().role != GemmRole::wgrad && depthwise_fits(view);
}
KernelSpec depthwise_spec(const NodeView& view) {
  const DepthwiseParams p = depthwise_params(view);
  return launching(make_spec(KernelId::depthwise, p), launches_of(Direction::forward, p));
}
bool depthwise_weight_applies(const NodeView& view) {
  return view.attrs<ConvolutionAttrs>().role == GemmRole::wgrad && depthwise_fits(view);
}
int64_t depthwise_weight_scratch(const NodeView& view) {
  return depthwise_scratch_bytes(depthwise_params(view));
}
KernelSpec depthwise_weight_spec(const NodeView& view) {
  const DepthwiseParams p = depthwise_params(view);
  return launching(make_spec(KernelId::depthwise_weight, p), launches_of(Direction::backward, p));
}
// Sums in the same order wherever they are made.
static_assert(kDepthwiseBlockRows == kDepthwiseRows && kDepthwiseJoinedSums == kDepthwiseSums);

bool batch_norm_applies(const NodeView& view) {
  bool all = true;
  for (size_t i = 0; i < view.node.operands.size(); ++i)
    all = all && is_high_precision(view.in(i).dtype);
  for (size_t i = 0; i < own_results(view); ++i)
    all = all && (!view.gives(i) || is_high_precision(view.out(i).dtype));
  return all;
}
// Own statistics alone.
bool batch_norm_grad_applies(const NodeView& view) {
  return batch_norm_applies(view) && view.attrs<BatchNormAttrs>().own;
}
template <typename Op>
int64_t batch_norm_scratch(const NodeView& view) {
  return batch_norm_scratch_bytes(view.in(Op::x).shape[1]);
}

KernelSpec batch_norm_spec(const NodeView& view) {
  using Op = BatchNorm;
  const auto& attrs = view.attrs<BatchNormAttrs>();
  BatchNormParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Op::x));
  const auto n = static_cast<double>(p.rows);
  p.momentum = attrs.momentum;
  p.variance_share = attrs.momentum * (n / (n - 1));
  p.eps = static_cast<float>(attrs.eps);
  p.x = unquantized_operand(view, Op::x);
  p.weight = unquantized_operand(view, Op::weight);
  p.bias = unquantized_operand(view, Op::bias);
  p.mean = unquantized_operand(view, Op::mean);
  p.variance = unquantized_operand(view, Op::variance);
  p.y = unquantized_result(view, Op::y);
  p.own_mean = unquantized_result(view, Op::own_mean);
  p.own_variance = unquantized_result(view, Op::own_variance);
  p.next_mean = unquantized_result(view, Op::next_mean);
  p.next_variance = unquantized_result(view, Op::next_variance);
  p.own = attrs.own;
  return launching(make_spec(KernelId::batch_norm, p), launches_of(p));
}

KernelSpec batch_norm_grad_spec(const NodeView& view) {
  using Op = BatchNormGrad;
  BatchNormGradParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Op::x));
  p.eps = static_cast<float>(view.attrs<BatchNormAttrs>().eps);
  p.dy = unquantized_operand(view, Op::dy);
  p.x = unquantized_operand(view, Op::x);
  p.mean = unquantized_operand(view, Op::own_mean);
  p.variance = unquantized_operand(view, Op::own_variance);
  p.weight = unquantized_operand(view, Op::weight);
  p.dx = unquantized_result(view, Op::dx);
  p.dw = unquantized_result(view, Op::dweight);
  p.db = unquantized_result(view, Op::dbias);
  return launching(make_spec(KernelId::batch_norm_grad, p), launches_of(p));
}

const Binding kPictureBindings[] = {
    {{OpCode::unfold, "copy", unfold_applies}, unfold_spec},
    {{OpCode::fold, "gather", fold_applies}, fold_spec},
    {{OpCode::depthwise, "direct", depthwise_applies}, depthwise_spec},
    {{OpCode::depthwise, "rows", depthwise_weight_applies, depthwise_weight_scratch},
     depthwise_weight_spec},
    {{OpCode::batch_norm, "columns", batch_norm_applies, batch_norm_scratch<BatchNorm>},
     batch_norm_spec},
    {{OpCode::batch_norm_grad, "columns", batch_norm_grad_applies,
      batch_norm_scratch<BatchNormGrad>},
     batch_norm_grad_spec},
};

}  // namespace

std::span<const Binding> picture_bindings() {
  return kPictureBindings;
}

}  // namespace octet::cuda
