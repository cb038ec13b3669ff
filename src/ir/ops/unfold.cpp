// Windows of pictures, which convolutions multiply by their weights (im2col), and the sum that goes
// back (col2im). A picture lies as [B, height, width, C], the channels of a pixel together.
//   unfold: y[(b, p, q), (i, j, c)] = x[b, stride p + dilation i - low, ..., c], 0 outside
//   fold:   x[b, r, s, c] = sum over the places (i, j), in this order, of
//           y[(b, p, q), (i, j, c)] where window (p, q) has pixel (r, s) at place (i, j)
// Each is the other's gradient. A fold's sums are f32, rounded once.
//   convolution: a GEMM with the unfold or the fold beside it (passes/lower/fold_windows.cpp)
//   depthwise: each channel's windows and its own weights w[c, (i, j)], of pictures that lie as
//     [B height width, C]. Products and sums are f32, and results are rounded once.
//     y[t, c]      = sum over the places of x[t, (i, j), c] w[c, (i, j)], in this order
//     dx[b,r,s, c] = sum over the places, from the last to the first, of dy[t, c] w[c, (i, j)]
//                    where window t has the pixel there
//     dw[c, (i,j)] = sum over the windows t of dy[t, c] x[t, (i, j), c]: of a row of windows in
//                    their order; of kDepthwiseRows such rows, those of all pictures behind each
//                    other, in their order; of these blocks in double: kDepthwiseSums sums, the
//                    k-th of blocks k, k + kDepthwiseSums, ..., the second half of which is added
//                    to the first until one is left. Backends have this order, and so equal bits.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/scale_rules.h"

namespace octet::ops {
namespace {

const UnfoldAttrs& checked(std::string_view op, const Attrs& attrs) {
  constexpr int64_t kMax = int64_t{1} << 31;  // no sum of a few overflows
  const auto& a = std::get<UnfoldAttrs>(attrs);
  for (const Shape* said : {&a.picture, &a.window, &a.stride, &a.dilation, &a.low, &a.high}) {
    if (said->size() != 2)
      fail(op, "expected picture, window, stride, dilation, low and high of 2 axes, got {}",
           to_string(*said));
    const int64_t least = said == &a.low || said == &a.high ? 0 : 1;
    for (const int64_t n : *said) {
      if (n < least || n >= kMax)
        fail(op, "expected extents from 1, low and high from 0, got {}", to_string(*said));
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    const int64_t padded = a.picture[i] + a.low[i] + a.high[i];
    if (a.window[i] - 1 > (padded - 1) / a.dilation[i])
      fail(op, "axis {} of {} with {} and {} more must hold {} places, {} apart", i, a.picture[i],
           a.low[i], a.high[i], a.window[i], a.dilation[i]);
  }
  return a;
}

// Elements of a window in one channel.
int64_t n_places(const UnfoldAttrs& a) {
  return a.window[0] * a.window[1];
}

Results infer_unfold(const Attrs& attrs, Types in) {
  const UnfoldAttrs& a = checked("unfold", attrs);
  need_rank("unfold", "x", in[0], 4);
  const Shape& x = in[0].shape;
  if (x[1] != a.picture[0] || x[2] != a.picture[1])
    fail("unfold", "expected pictures of {}, got {}", to_string(a.picture), to_string(x));
  const Shape windows = {x[0], a.n_windows(0), a.n_windows(1), n_places(a), x[3]};
  need_dims("unfold", "y", windows);
  return {moved(in[0], {x[0] * windows[1] * windows[2], n_places(a) * x[3]})};
}

Results infer_fold(const Attrs& attrs, Types in) {
  const UnfoldAttrs& a = checked("fold", attrs);
  need_float("fold", "x", in[0]);
  need_matrix("fold", "x", in[0]);
  const Shape& x = in[0].shape;
  const int64_t n_windows = a.n_windows(0) * a.n_windows(1);
  if (x[0] % n_windows != 0 || x[1] % n_places(a) != 0)
    fail("fold", "expected rows in pictures of {} windows and columns of {} places, got {}",
         n_windows, n_places(a), to_string(x));
  const Shape y = {x[0] / n_windows, a.picture[0], a.picture[1], x[1] / n_places(a)};
  need_dims("fold", "y", y);
  return {real(y)};
}

// The pixels at place i of a window, of padded pictures.
SliceAttrs place(const UnfoldAttrs& a, int64_t i, const Shape& padded) {
  const int64_t row = i / a.window[1] * a.dilation[0], column = i % a.window[1] * a.dilation[1];
  return {.start = {0, row, column, 0},
          .limit = {padded[0], row + a.stride[0] * (a.n_windows(0) - 1) + 1,
                    column + a.stride[1] * (a.n_windows(1) - 1) + 1, padded[3]},
          .stride = {1, a.stride[0], a.stride[1], 1}};
}
Shape padded_shape(const UnfoldAttrs& a, int64_t n_pictures, int64_t channels) {
  return {n_pictures, a.picture[0] + a.low[0] + a.high[0], a.picture[1] + a.low[1] + a.high[1],
          channels};
}

ValueId with_border(Builder& b, const UnfoldAttrs& a, ValueId x) {
  const Shape& shape = b.shape(x);
  if (padded_shape(a, shape[0], shape[3]) == shape) return x;
  return b.emit1(OpCode::pad,
                 PadAttrs{.low = {0, a.low[0], a.low[1], 0},
                          .high = {0, a.high[0], a.high[1], 0},
                          .interior = {0, 0, 0, 0}},
                 {x});
}

Values decompose_unfold(Builder& b, const Node& node) {
  const auto& a = std::get<UnfoldAttrs>(node.attrs);
  const Shape shape = b.shape(node.in(Unary::x)), padded = padded_shape(a, shape[0], shape[3]);
  const ValueId x = with_border(b, a, node.in(Unary::x));
  Values places;
  for (int64_t i = 0; i < n_places(a); ++i)
    places.push_back(b.emit1(OpCode::slice, place(a, i, padded), {x}));
  const ValueId joined = places.size() == 1 ? places[0] : b.concatenate(places, 3);
  const int64_t n_windows = shape[0] * a.n_windows(0) * a.n_windows(1);
  return {b.reshape(joined, {n_windows, n_places(a) * shape[3]})};
}

// Pixels that are place i of their windows, each where it stands in padded pictures; zeros between.
ValueId spread(Builder& b, const UnfoldAttrs& a, int64_t i, const Shape& padded, ValueId pixels) {
  const SliceAttrs at = place(a, i, padded);
  return b.emit1(OpCode::pad,
                 PadAttrs{.low = at.start,
                          .high = {0, padded[1] - at.limit[1], padded[2] - at.limit[2], 0},
                          .interior = {0, a.stride[0] - 1, a.stride[1] - 1, 0}},
                 {pixels});
}
// The pictures in the midst of padded ones.
ValueId without_border(Builder& b, const UnfoldAttrs& a, const Shape& padded, ValueId x) {
  const SliceAttrs inside{
      .start = {0, a.low[0], a.low[1], 0},
      .limit = {padded[0], a.low[0] + a.picture[0], a.low[1] + a.picture[1], padded[3]},
      .stride = {1, 1, 1, 1}};
  return b.emit1(OpCode::slice, inside, {x});
}

// Each place's pixels between zeros, added up.
Values decompose_fold(Builder& b, const Node& node) {
  const auto& a = std::get<UnfoldAttrs>(node.attrs);
  const Shape x = b.shape(node.in(Unary::x));
  const int64_t rows = a.n_windows(0), columns = a.n_windows(1);
  const int64_t n_pictures = x[0] / (rows * columns), channels = x[1] / n_places(a);
  const Shape padded = padded_shape(a, n_pictures, channels);
  const ValueId windows = b.reshape(node.in(Unary::x), {n_pictures, rows, columns, x[1]});
  ValueId sum = kNoValue;
  for (int64_t i = 0; i < n_places(a); ++i) {
    const ValueId pixels = spread(b, a, i, padded, b.slice(windows, 3, i * channels, channels));
    sum = i == 0 ? pixels : emit_wide(b, OpCode::add, sum, pixels);
  }
  return {without_border(b, a, padded, sum)};
}

Results infer_convolution(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "convolution";
  const auto& [windows, role] = std::get<ConvolutionAttrs>(attrs);
  const TensorType &a = in[Binary::a], &b = in[Binary::b];
  need_float(kName, "a", a);
  need_float(kName, "b", b);
  if (role == GemmRole::other) fail(kName, "expected a role, got other");
  const bool is_dgrad = role == GemmRole::dgrad;
  if (!is_dgrad) {
    const bool is_forward = role == GemmRole::forward;
    const Shape unfolded = infer_unfold(windows, in.subspan(is_forward ? 0 : 1, 1))[0].shape;
    need_matrix(kName, is_forward ? "b" : "a", is_forward ? b : a);
    const int64_t n_out = is_forward ? b.shape[0] : a.shape[1];
    need_shape(kName, is_forward ? "b" : "a", is_forward ? b : a,
               is_forward ? Shape{n_out, unfolded[1]} : Shape{unfolded[0], n_out});
    return {real(is_forward ? Shape{unfolded[0], n_out} : Shape{n_out, unfolded[1]})};
  }
  need_matrix(kName, "a", a);
  need_matrix(kName, "b", b);
  need_shape(kName, "b", b, {a.shape[1], b.shape[1]});
  const TensorType unfolded[] = {real({a.shape[0], b.shape[1]})};
  return infer_fold(windows, unfolded);
}

Values decompose_convolution(Builder& b, const Node& node) {
  const auto& attrs = std::get<ConvolutionAttrs>(node.attrs);
  const GemmRole role = attrs.role;
  const ValueId x = node.in(Binary::a), y = node.in(Binary::b);
  const auto unfolded = [&](ValueId of) { return b.emit1(OpCode::unfold, attrs.windows, {of}); };
  switch (role) {
    case GemmRole::forward:
      return {b.gemm(unfolded(x), y, {.trans_b = true, .role = role})};
    case GemmRole::wgrad:
      return {b.gemm(x, unfolded(y), {.trans_a = true, .role = role})};
    default:
      return {b.emit1(OpCode::fold, attrs.windows, {b.gemm(x, y, {.role = role})})};
  }
}

// The three products are one form of three factors, windows of the picture among them: the gradient
// of each factor is the product of the other two.
Values vjp_of_product(Builder& b, const VjpCall& call) {
  const auto& attrs = std::get<ConvolutionAttrs>(call.node.attrs);
  const ValueId g = call.dresults[Binary::y];
  const ValueId first = call.node.in(Binary::a), second = call.node.in(Binary::b);
  const OpCode op = call.node.op;
  const auto as = [&](GemmRole role, ValueId x, ValueId y) {
    return b.emit1(op, ConvolutionAttrs{.windows = attrs.windows, .role = role}, {x, y});
  };
  Values gradients(2, kNoValue);
  if (call.wants(Binary::a)) {
    gradients[Binary::a] = attrs.role == GemmRole::forward ? as(GemmRole::dgrad, g, second)
                           : attrs.role == GemmRole::wgrad ? as(GemmRole::forward, second, g)
                                                           : as(GemmRole::forward, g, second);
  }
  if (call.wants(Binary::b)) {
    gradients[Binary::b] = attrs.role == GemmRole::forward ? as(GemmRole::wgrad, g, first)
                           : attrs.role == GemmRole::wgrad ? as(GemmRole::dgrad, first, g)
                                                           : as(GemmRole::wgrad, first, g);
  }
  return gradients;
}

Cost cost_convolution(const Graph& graph, const Node& node) {
  const auto& [windows, role] = std::get<ConvolutionAttrs>(node.attrs);
  const bool is_wgrad = role == GemmRole::wgrad;
  // Shape of the result of one product.
  const Shape& y =
      graph.type(is_wgrad || role == GemmRole::dgrad ? node.in(Binary::a) : node.out(Binary::y))
          .shape;
  const Shape& w = graph.type(is_wgrad ? node.out(Binary::y) : node.in(Binary::b)).shape;
  return {.flops = 2.0 * static_cast<double>(n_elems(y)) * static_cast<double>(w[1]),
          .bytes = moved_bytes(graph, node)};
}

Results infer_depthwise(const Attrs& attrs, Types in) {
  constexpr std::string_view kName = "depthwise";
  const auto& [a, role] = std::get<ConvolutionAttrs>(attrs);
  checked(kName, a);
  const bool is_forward = role == GemmRole::forward, is_wgrad = role == GemmRole::wgrad;
  if (role == GemmRole::other) fail(kName, "expected a role, got other");
  for (const SlotId slot : {Binary::a, Binary::b}) {
    need_float(kName, slot == Binary::a ? "a" : "b", in[slot]);
    need_matrix(kName, slot == Binary::a ? "a" : "b", in[slot]);
  }
  const Shape& first = in[Binary::a].shape;
  const int64_t n_pixels = a.picture[0] * a.picture[1], n_windows = a.n_windows(0) * a.n_windows(1);
  const int64_t n_each = is_forward ? n_pixels : n_windows, channels = first[1];
  if (first[0] % n_each != 0)
    fail(kName, "expected rows in pictures of {} {}, got {}", n_each,
         is_forward ? "pixels" : "windows", to_string(first));
  const int64_t n_pictures = first[0] / n_each;
  need_dims(kName, "windows", {n_pictures, n_windows, n_places(a), channels});
  need_dims(kName, "pictures", {n_pictures, n_pixels, channels});
  const Shape weight = {channels, n_places(a)}, pictures = {n_pictures * n_pixels, channels};
  need_shape(kName, "b", in[Binary::b], is_wgrad ? pictures : weight);
  if (is_wgrad) return {real(weight)};
  return {real(is_forward ? Shape{n_pictures * n_windows, channels} : pictures)};
}

ValueId in_f32(Builder& b, ValueId x) {
  return b.type(x).dtype == Dtype::f32 ? x : b.cast(x, Dtype::f32);
}

// A depthwise convolution in f32, by place of the windows.
class DepthwiseSteps {
 public:
  DepthwiseSteps(Builder& b, const Node& node)
      : b_(b),
        a_(std::get<ConvolutionAttrs>(node.attrs).windows),
        channels_(b.shape(node.in(Binary::a))[1]) {}

  ValueId forward(ValueId x, ValueId weight) {
    const ValueId pictures = bordered(x);
    ValueId sum = kNoValue;
    for (int64_t i = 0; i < n_places(a_); ++i) {
      const ValueId pixels = in_f32(b_, place_of(pictures, i));
      const Shape shape = b_.shape(pixels);
      const ValueId product = b_.mul(pixels, factor(weight, i, shape));
      sum = i == 0 ? product : b_.add(sum, product);
    }
    return rows(sum);
  }
  ValueId dgrad(ValueId dy, ValueId weight) {
    const ValueId gradient = in_f32(b_, windows(dy));
    const Shape shape = b_.shape(gradient), padded = padded_shape(a_, shape[0], channels_);
    ValueId sum = kNoValue;
    for (int64_t i = n_places(a_); i-- > 0;) {
      const ValueId product = b_.mul(gradient, factor(weight, i, shape));
      const ValueId pixels = spread(b_, a_, i, padded, product);
      sum = sum == kNoValue ? pixels : b_.add(sum, pixels);
    }
    return rows(without_border(b_, a_, padded, sum));
  }
  ValueId wgrad(ValueId dy, ValueId x) {
    const ValueId gradient = in_f32(b_, windows(dy)), pictures = bordered(x);
    Values columns;
    for (int64_t i = 0; i < n_places(a_); ++i) {
      const ValueId product = b_.mul(gradient, in_f32(b_, place_of(pictures, i)));
      columns.push_back(b_.reshape(b_.reduce_sum(product, {0, 1, 2}), {channels_, 1}));
    }
    return columns.size() == 1 ? columns[0] : b_.concatenate(columns, 1);
  }

 private:
  ValueId bordered(ValueId x) {
    const int64_t height = a_.picture[0], width = a_.picture[1];
    const int64_t n_pictures = b_.shape(x)[0] / (height * width);
    return with_border(b_, a_, b_.reshape(x, {n_pictures, height, width, channels_}));
  }
  ValueId windows(ValueId dy) {
    const int64_t n_rows = a_.n_windows(0), n_columns = a_.n_windows(1);
    return b_.reshape(dy, {b_.shape(dy)[0] / (n_rows * n_columns), n_rows, n_columns, channels_});
  }
  ValueId place_of(ValueId pictures, int64_t i) {
    const SliceAttrs at = place(a_, i, b_.shape(pictures));
    return b_.emit1(OpCode::slice, at, {pictures});
  }
  ValueId factor(ValueId weight, int64_t i, const Shape& shape) {
    const ValueId column = b_.reshape(b_.slice(weight, 1, i, 1), {channels_});
    return b_.broadcast(in_f32(b_, column), shape, {3});
  }
  ValueId rows(ValueId pictures) {
    const Shape& shape = b_.shape(pictures);
    return b_.reshape(pictures, {shape[0] * shape[1] * shape[2], channels_});
  }

  Builder& b_;
  const UnfoldAttrs& a_;
  int64_t channels_;
};

Values decompose_depthwise(Builder& b, const Node& node) {
  DepthwiseSteps steps(b, node);
  const ValueId first = node.in(Binary::a), second = node.in(Binary::b);
  switch (std::get<ConvolutionAttrs>(node.attrs).role) {
    case GemmRole::forward:
      return {steps.forward(first, second)};
    case GemmRole::wgrad:
      return {steps.wgrad(first, second)};
    default:
      return {steps.dgrad(first, second)};
  }
}

Cost cost_depthwise(const Graph& graph, const Node& node) {
  const auto& [windows, role] = std::get<ConvolutionAttrs>(node.attrs);
  const ValueId y = role == GemmRole::forward ? node.out(Binary::y) : node.in(Binary::a);
  const auto n = static_cast<double>(graph.type(y).n_elems() * n_places(windows));
  return {.flops = 2 * n, .bytes = moved_bytes(graph, node)};
}

template <OpCode kGradient>
Values vjp_as(Builder& b, const VjpCall& call) {
  return {b.emit1(kGradient, call.node.attrs, {call.dresults[0]})};
}

}  // namespace

constinit const OpDef defs::unfold = define(OpCode::unfold, {.infer = infer_unfold,
                                                             .vjp = vjp_as<OpCode::fold>,
                                                             .decompose = decompose_unfold,
                                                             .scale = scale::same});
constinit const OpDef defs::fold = define(OpCode::fold, {.infer = infer_fold,
                                                         .vjp = vjp_as<OpCode::unfold>,
                                                         .decompose = decompose_fold,
                                                         .scale = scale::fold,
                                                         .cost = cost_per_operand<1>});

constinit const OpDef defs::convolution =
    define(OpCode::convolution, {.infer = infer_convolution,
                                 .vjp = vjp_of_product,
                                 .decompose = decompose_convolution,
                                 .scale = scale::of_steps,
                                 .cost = cost_convolution});
constinit const OpDef defs::depthwise = define(OpCode::depthwise, {.infer = infer_depthwise,
                                                                   .vjp = vjp_of_product,
                                                                   .decompose = decompose_depthwise,
                                                                   .scale = scale::depthwise,
                                                                   .cost = cost_depthwise});

}  // namespace octet::ops
