#include "nn/convolution.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace octet {
namespace {

constexpr double kMomentum = 0.1;  // of running statistics, PyTorch's

int64_t channels_of(const Blocks& b, const Picture& picture) {
  return b.shape(picture.x)[1];
}

template <typename... Args>
[[noreturn]] void fail(std::string_view op, std::string_view path,
                       fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, "[{}] {}: {}", op, path,
              fmt::format(format, std::forward<Args>(args)...));
}

// Windows on a picture's extent: pixels of border on both sides, and how many windows fit.
struct Axis {
  int64_t low = 0, high = 0, n_windows = 0;
};
Axis axis_of(std::string_view op, std::string_view path, int64_t size,
             const ConvolutionOptions& o) {
  Axis axis{.low = o.padding, .high = o.padding};
  if (o.border == Border::same) {
    const int64_t rest = size % o.stride, taken = rest == 0 ? o.stride : rest;
    const int64_t more = std::max<int64_t>(o.kernel - taken, 0);
    axis = {.low = more / 2 * o.dilation, .high = (more - more / 2) * o.dilation};
  }
  const int64_t window = o.dilation * (o.kernel - 1) + 1, padded = size + axis.low + axis.high;
  if (window > padded) {
    fail(op, path, "expected a window of at most {} pixels, those of the padded picture, got {}",
         padded, window);
  }
  axis.n_windows = (padded - window) / o.stride + 1;
  return axis;
}

void check_options(std::string_view op, std::string_view path, const ConvolutionOptions& o) {
  constexpr int64_t kMax = 1 << 14;
  const auto is_count = [](int64_t n) { return n >= 1 && n <= kMax; };
  if (is_count(o.kernel) && is_count(o.stride) && is_count(o.dilation) && is_count(o.groups) &&
      o.padding >= 0 && o.padding <= kMax)
    return;
  fail(op, path,
       "expected kernel, stride, dilation and groups from 1 to {}, and padding from 0, got {}, {}, "
       "{}, {} and {}",
       kMax, o.kernel, o.stride, o.dilation, o.groups, o.padding);
}

// The pixels that windows have at one place each, of [B, height, width, C].
struct Taps {
  std::vector<ValueId> values;
  int64_t height, width;
};

Taps taps_of(Blocks& b, const Picture& picture, const ConvolutionOptions& o, double outside,
             std::string_view path) {
  Builder& builder = b.builder();
  const int64_t batch = b.size().batch, channels = channels_of(b, picture);
  const Axis rows = axis_of("convolution", path, picture.height, o),
             columns = axis_of("convolution", path, picture.width, o);
  Taps taps{.values = {}, .height = rows.n_windows, .width = columns.n_windows};
  ValueId x = builder.reshape(picture.x, {batch, picture.height, picture.width, channels});
  if (std::max({rows.low, rows.high, columns.low, columns.high}) > 0) {
    x = builder.emit1(OpCode::pad,
                      PadAttrs{.low = {0, rows.low, columns.low, 0},
                               .high = {0, rows.high, columns.high, 0},
                               .interior = {0, 0, 0, 0},
                               .value = outside},
                      {x});
  }
  for (int64_t i = 0; i < o.kernel * o.kernel; ++i) {
    const int64_t row = o.dilation * (i / o.kernel), column = o.dilation * (i % o.kernel);
    const SliceAttrs slice{.start = {0, row, column, 0},
                           .limit = {batch, row + o.stride * (taps.height - 1) + 1,
                                     column + o.stride * (taps.width - 1) + 1, channels},
                           .stride = {1, o.stride, o.stride, 1}};
    const bool is_all = o.kernel == 1 && o.stride == 1;
    taps.values.push_back(is_all ? x : builder.emit1(OpCode::slice, slice, {x}));
  }
  return taps;
}

// The windows of a picture, whose extents become those of the result.
UnfoldAttrs window_attrs(const Picture& picture, const ConvolutionOptions& o, std::string_view path,
                         Picture& result) {
  const Axis rows = axis_of("convolution", path, picture.height, o),
             columns = axis_of("convolution", path, picture.width, o);
  result.height = rows.n_windows, result.width = columns.n_windows;
  return {.picture = {picture.height, picture.width},
          .window = {o.kernel, o.kernel},
          .stride = {o.stride, o.stride},
          .dilation = {o.dilation, o.dilation},
          .low = {rows.low, columns.low},
          .high = {rows.high, columns.high}};
}

// [B * height * width, kernel * kernel * C].
ValueId windows_of(Blocks& b, const Picture& picture, const ConvolutionOptions& o,
                   std::string_view path, Picture& result) {
  const UnfoldAttrs attrs = window_attrs(picture, o, path, result);
  const Shape none = {0, 0};
  if (o.kernel == 1 && o.stride == 1 && attrs.low == none && attrs.high == none) return picture.x;
  Builder& builder = b.builder();
  const ValueId x = builder.reshape(
      picture.x, {b.size().batch, picture.height, picture.width, channels_of(b, picture)});
  return builder.emit1(OpCode::unfold, attrs, {x});
}

struct Convolution {
  const Picture& picture;
  std::string_view path;
  int64_t n_out;
  const ConvolutionOptions& options;
};

// Each group's windows meet its part of the weight.
Picture grouped_gemm(Blocks& b, const Convolution& c, const LinearOptions& linear) {
  Builder& builder = b.builder();
  const ConvolutionOptions& o = c.options;
  const int64_t n_in = channels_of(b, c.picture) / o.groups, n_each = c.n_out / o.groups;
  const ValueId weight = b.linear_weight(c.path, c.n_out, n_in * o.kernel * o.kernel, linear);
  Picture result;
  std::vector<ValueId> parts;
  for (int64_t g = 0; g < o.groups; ++g) {
    b.module(c.path);
    const Picture part = {b.columns(c.picture.x, g * n_in, n_in), c.picture.height,
                          c.picture.width};
    const ValueId windows = windows_of(b, part, o, c.path, result);
    builder.tag.origin = fmt::format("{}.{}", c.path, g);
    parts.push_back(builder.gemm(windows, builder.slice(weight, 0, g * n_each, n_each),
                                 {.trans_b = true, .role = GemmRole::forward}));
  }
  b.module(c.path);
  result.x = builder.concatenate(parts, 1);
  return result;
}

// Each channel's windows meet its own row of the weight.
Picture depthwise(Blocks& b, const Convolution& c, const LinearOptions& linear) {
  b.builder().tag.origin = c.path;
  const int64_t n = channels_of(b, c.picture), n_places = c.options.kernel * c.options.kernel;
  const ValueId weight = b.linear_weight(c.path, n, n_places, linear);
  Picture result;
  const ConvolutionAttrs attrs{window_attrs(c.picture, c.options, c.path, result),
                               GemmRole::forward};
  result.x = b.builder().emit1(OpCode::depthwise, attrs, {c.picture.x, weight});
  return result;
}

// The means of the parts of one axis of [B, height, width, C], which become its elements.
ValueId part_means(Blocks& b, ValueId x, int64_t axis, int64_t n) {
  Builder& builder = b.builder();
  Shape shape = b.shape(x);
  const int64_t size = shape[static_cast<size_t>(axis)];
  if (size == n) return x;
  shape[static_cast<size_t>(axis)] = 1;
  ValueIds parts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = i * size / n, n_each = ((i + 1) * size + n - 1) / n - first;
    const ValueId sum = builder.reduce_sum(builder.slice(x, axis, first, n_each), {axis});
    parts.push_back(builder.reshape(builder.scaled(sum, 1 / static_cast<double>(n_each)), shape));
  }
  return builder.concatenate(parts, axis);
}

}  // namespace

ValueId Blocks::constant(std::string_view path, std::string_view leaf, int64_t n, Init init) {
  return parameter({.name = name(path, leaf), .shape = {n}, .init = init});
}

ValueId Blocks::statistic(std::string_view path, std::string_view leaf, int64_t n, Init init) {
  return parameter({.name = name(path, leaf), .shape = {n}, .init = init, .is_statistic = true});
}

Picture picture_of(Blocks& b, ValueId pixels) {
  b.module("pixels");
  const Shape shape = b.shape(pixels);
  return {b.builder().reshape(b.builder().transpose(pixels, {0, 2, 3, 1}),
                              {shape[0] * shape[2] * shape[3], shape[1]}),
          shape[2], shape[3]};
}

Picture convolution(Blocks& b, const Picture& picture, std::string_view path, int64_t n_out,
                    const ConvolutionOptions& o) {
  check_options("convolution", path, o);
  const int64_t n_in = channels_of(b, picture);
  if (n_out < 1 || n_in % o.groups != 0 || n_out % o.groups != 0) {
    fail("convolution", path, "expected groups that divide {} channels and make {}, got {}", n_in,
         n_out, o.groups);
  }
  // He et al. 2015, by what a weight gives to.
  const int64_t n_given = n_out / o.groups;
  const auto fan_out = static_cast<double>(o.kernel * o.kernel * n_given);
  const LinearOptions linear{.bias = o.bias,
                             .whole_path = true,
                             .file_shape = {n_out, n_in / o.groups, o.kernel, o.kernel},
                             .channels_last = true,
                             .std = std::sqrt(2 / fan_out)};
  Picture result;
  b.module(path);
  if (o.groups == 1) {
    result.x = b.linear(windows_of(b, picture, o, path, result), path, n_out, linear);
    return result;
  }
  const bool is_depthwise = o.groups == n_in && o.groups == n_out;
  const Convolution whole{picture, path, n_out, o};
  result = is_depthwise ? depthwise(b, whole, linear) : grouped_gemm(b, whole, linear);
  if (o.bias == WithBias::yes) result.x = b.bias(result.x, fmt::format("{}.bias", path));
  return result;
}

Picture max_pool(Blocks& b, const Picture& picture, std::string_view path,
                 const ConvolutionOptions& o) {
  check_options("max_pool", path, o);
  b.module(path);
  const Taps taps = taps_of(b, picture, o, -std::numeric_limits<double>::infinity(), path);
  ValueId largest = taps.values.front();
  for (size_t i = 1; i < taps.values.size(); ++i)
    largest = b.builder().maximum(largest, taps.values[i]);
  const int64_t n_pixels = b.size().batch * taps.height * taps.width;
  return {b.builder().reshape(largest, {n_pixels, channels_of(b, picture)}), taps.height,
          taps.width};
}

Picture mean_pool(Blocks& b, const Picture& picture, std::string_view path, int64_t kernel) {
  const ConvolutionOptions o{.kernel = kernel, .stride = kernel};
  check_options("mean_pool", path, o);
  b.module(path);
  const Taps taps = taps_of(b, picture, o, 0, path);
  ValueId sum = taps.values.front();
  for (size_t i = 1; i < taps.values.size(); ++i) sum = b.builder().add(sum, taps.values[i]);
  const ValueId mean = b.builder().scaled(sum, 1 / static_cast<double>(kernel * kernel));
  const int64_t n_pixels = b.size().batch * taps.height * taps.width;
  return {b.builder().reshape(mean, {n_pixels, channels_of(b, picture)}), taps.height, taps.width};
}

ValueId flat_means(Blocks& b, const Picture& picture, std::string_view path, int64_t side) {
  Builder& builder = b.builder();
  b.module(path);
  const int64_t batch = b.size().batch, n = channels_of(b, picture);
  const ValueId x = builder.reshape(picture.x, {batch, picture.height, picture.width, n});
  const ValueId means = part_means(b, part_means(b, x, 1, side), 2, side);
  return builder.reshape(builder.transpose(means, {0, 3, 1, 2}), {batch, n * side * side});
}

Picture batch_norm(Blocks& b, const Picture& picture, std::string_view path) {
  using Op = BatchNorm;
  const Shape shape = b.shape(picture.x);
  b.module(path);
  const ValueId weight = b.constant(path, "weight", shape[1], Init::ones);
  const ValueId bias = b.constant(path, "bias", shape[1], Init::zeros);
  const ValueId mean = b.statistic(path, "running_mean", shape[1], Init::zeros);
  const ValueId variance = b.statistic(path, "running_var", shape[1], Init::ones);
  const bool is_own = b.size().statistics == BatchStatistics::own;
  if (is_own && shape[0] < 2) {
    fail("batch_norm", path, "expected more than 1 pixel in a batch that is trained on, got {}",
         shape[0]);
  }
  const ValueIds results =
      b.builder().emit(OpCode::batch_norm, BatchNormAttrs{b.spec().norm_eps, kMomentum, is_own},
                       {picture.x, weight, bias, mean, variance});
  if (is_own) {
    b.builder().next(mean, results[Op::next_mean]);
    b.builder().next(variance, results[Op::next_variance]);
  }
  return {results[Op::y], picture.height, picture.width};
}

Picture subsampled(Blocks& b, const Picture& picture, int64_t stride, int64_t n_out) {
  b.module("shortcut");
  Picture result;
  result.x = windows_of(b, picture, {.kernel = 1, .stride = stride}, "shortcut", result);
  const int64_t n_more = n_out - channels_of(b, picture);
  CHECK(n_more >= 0);
  if (n_more == 0) return result;
  const PadAttrs pad{
      .low = {0, n_more / 2}, .high = {0, n_more - n_more / 2}, .interior = {0, 0}, .value = 0};
  result.x = b.builder().emit1(OpCode::pad, pad, {result.x});
  return result;
}

Picture relu(Blocks& b, const Picture& picture, std::string_view origin) {
  return {b.relu(picture.x, origin), picture.height, picture.width};
}

Picture relu6(Blocks& b, const Picture& picture, std::string_view origin) {
  const Picture above = relu(b, picture, origin);
  const ValueId most = b.builder().fill_like(above.x, 6);
  return {b.builder().minimum(above.x, most), picture.height, picture.width};
}

Picture joined(Blocks& b, const Picture& one, const Picture& other, std::string_view origin) {
  CHECK(one.height == other.height && one.width == other.width);
  b.module(origin);
  return {b.builder().concatenate({one.x, other.x}, 1), one.height, one.width};
}

Picture add(Blocks& b, const Picture& one, const Picture& other) {
  CHECK(one.height == other.height && one.width == other.width);
  return {b.add(one.x, other.x), one.height, one.width};
}

ValueId mean_of_pixels(Blocks& b, const Picture& picture) {
  b.module("pooler");
  const int64_t n = picture.height * picture.width;
  const ValueId apart =
      b.builder().reshape(picture.x, {b.size().batch, n, channels_of(b, picture)});
  return b.builder().scaled(b.builder().reduce_sum(apart, {1}), 1 / static_cast<double>(n));
}

}  // namespace octet
