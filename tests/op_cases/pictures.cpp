// Cases of windows of pictures, and of batch norm.
#include <fmt/format.h>

#include "op_cases/families.h"

namespace octet::op_cases {
namespace {

// 3 x 3 places about each pixel.
UnfoldAttrs about_each() {
  return {.picture = {},
          .window = {3, 3},
          .stride = {1, 1},
          .dilation = {1, 1},
          .low = {1, 1},
          .high = {1, 1}};
}

void add_unfolds(Cases& all) {
  const auto put = [&](const std::string& name, const Shape& pictures, UnfoldAttrs a) {
    a.picture = {pictures[1], pictures[2]};
    const int64_t n_windows = a.n_windows(0) * a.n_windows(1);
    const Shape windows = {pictures[0] * n_windows, a.window[0] * a.window[1] * pictures[3]};
    all.push_back({.name = "unfold_" + name,
                   .op = OpCode::unfold,
                   .attrs = a,
                   .operands = {tensor(pictures)},
                   .tolerance = Tolerance::exact});
    all.push_back({.name = "fold_" + name,
                   .op = OpCode::fold,
                   .attrs = a,
                   .operands = {tensor(windows)},
                   .tolerance = Tolerance::reduction});
  };
  put("3x3", {2, 5, 4, 16}, about_each());
  put("3x3_ragged", {2, 4, 5, 3}, about_each());
  put("eights", {1, 6, 3, 24}, about_each());
  UnfoldAttrs a = about_each();
  a.stride = {2, 2};
  put("strided", {2, 7, 6, 8}, a);
  a = about_each();
  a.window = {1, 1}, a.stride = {2, 3}, a.low = a.high = {0, 0};
  put("sampled", {3, 5, 7, 4}, a);
  a = about_each();
  a.window = {2, 3}, a.stride = {1, 2}, a.dilation = {3, 2}, a.low = {0, 3}, a.high = {2, 1};
  put("dilated", {2, 6, 5, 5}, a);
  a = about_each();
  a.window = {7, 7}, a.stride = {2, 2}, a.low = a.high = {3, 3};
  put("7x7", {1, 9, 8, 2}, a);
  a = about_each();
  a.window = a.stride = {4, 4}, a.low = a.high = {0, 0};
  put("apart", {1, 9, 8, 1}, a);  // a line that no window holds
}

// Convolutions of pictures in one task of a thread or in several, the last of them shorter.
void add_convolutions(Cases& all) {
  const auto put = [&](const Shape& x, int64_t n_out, UnfoldAttrs a) {
    a.picture = {x[1], x[2]};
    const OperandCase pictures = tensor(x),
                      weight = tensor({n_out, a.window[0] * a.window[1] * x[3]}),
                      dy = tensor({x[0] * a.n_windows(0) * a.n_windows(1), n_out});
    const auto put_role = [&](GemmRole role, OperandCase first, OperandCase second) {
      all.push_back({.name = fmt::format("convolution_{}{}", enum_name(role), to_string(x)),
                     .op = OpCode::convolution,
                     .attrs = ConvolutionAttrs{a, role},
                     .operands = {std::move(first), std::move(second)},
                     .tolerance = Tolerance::reduction});
    };
    put_role(GemmRole::forward, pictures, weight);
    put_role(GemmRole::wgrad, dy, pictures);
    put_role(GemmRole::dgrad, dy, weight);
  };
  UnfoldAttrs halved = about_each();
  halved.stride = {2, 2};
  put({2, 5, 6, 3}, 4, about_each());
  put({19, 8, 8, 5}, 16, about_each());
  put({3, 9, 7, 16}, 33, halved);
  put({35, 23, 23, 1}, 2, about_each());
}

// Depthwise convolutions: less and more than a vector's channels, windows wider than what is summed
// at a time, and rows of windows in several blocks.
void add_depthwise(Cases& all) {
  const auto put = [&](const Shape& x, UnfoldAttrs a) {
    a.picture = {x[1], x[2]};
    const OperandCase pictures = tensor({x[0] * x[1] * x[2], x[3]}),
                      weight = tensor({x[3], a.window[0] * a.window[1]}),
                      dy = tensor({x[0] * a.n_windows(0) * a.n_windows(1), x[3]});
    const auto put_role = [&](GemmRole role, OperandCase first, OperandCase second) {
      all.push_back(
          {.name = fmt::format("depthwise_{}{}{}", enum_name(role), to_string(x), all.size()),
           .op = OpCode::depthwise,
           .attrs = ConvolutionAttrs{a, role},
           .operands = {std::move(first), std::move(second)},
           .tolerance = Tolerance::reduction,
           .typed_only = x[0] * x[1] > 100});  // too many for differences
    };
    put_role(GemmRole::forward, pictures, weight);
    put_role(GemmRole::wgrad, dy, pictures);
    put_role(GemmRole::dgrad, dy, weight);
  };
  put({2, 5, 4, 8}, about_each());
  put({1, 5, 7, 3}, about_each());
  put({130, 3, 3, 16}, about_each());
  UnfoldAttrs a = about_each();
  a.stride = {2, 2};
  put({1, 7, 6, 40}, a);
  a.low = {0, 0};  // as TensorFlow's SAME
  put({3, 6, 4, 17}, a);
  a = about_each();
  a.dilation = a.low = a.high = {2, 2};
  put({2, 5, 6, 8}, a);
  a = about_each();
  a.window = {2, 5}, a.stride = {3, 1}, a.low = {0, 4}, a.high = {1, 2};
  put({2, 4, 5, 9}, a);
  a.window = {4, 1}, a.stride = {2, 2}, a.low = {3, 0}, a.high = {3, 0};
  put({1, 2, 3, 8}, a);
}

}  // namespace

void add_pictures(Cases& all) {
  add_unfolds(all);
  add_convolutions(all);
  add_depthwise(all);
  const auto statistic_of = [](int64_t cols, Fill fill) {
    OperandCase operand = tensor({cols}, fill);
    operand.f32_only = true;
    return operand;
  };
  for (const Shape& shape :
       {Shape{2, 3}, Shape{7, 8}, Shape{600, 16}, Shape{33, 24}, Shape{9, 261}, Shape{1030, 5}}) {
    const int64_t cols = shape[1];
    const OperandCase mean = statistic_of(cols, Fill::normal),
                      variance = statistic_of(cols, Fill::positive);
    const std::vector<OperandCase> operands = {tensor(shape), tensor({cols}), tensor({cols}), mean,
                                               variance};
    all.push_back({.name = "batch_norm" + to_string(shape),
                   .op = OpCode::batch_norm,
                   .attrs = BatchNormAttrs{.eps = 1e-3, .momentum = 0.25},
                   .operands = operands,
                   .tolerance = Tolerance::reduction,
                   .typed_only = shape[0] > 100});  // too many for differences
    all.back().no_gradient = {3, 4};
    put_typed(all, "batch_norm_given" + to_string(shape), OpCode::batch_norm,
              BatchNormAttrs{.own = false}, operands);
    all.push_back({.name = "batch_norm_grad" + to_string(shape),
                   .op = OpCode::batch_norm_grad,
                   .attrs = BatchNormAttrs{},
                   .operands = {tensor(shape), tensor(shape), mean, variance, tensor({cols})},
                   .tolerance = Tolerance::reduction});
  }
}

}  // namespace octet::op_cases
