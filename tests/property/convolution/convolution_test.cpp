// Blocks of convolutional networks against formulas written out here.
#include "nn/convolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "ir/states.h"
#include "passes/autodiff.h"
#include "passes/lower/fuse.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"

namespace octet::convolution_test {
namespace {

using testing::HasSubstr;

using Numbers = std::vector<double>;
constexpr int64_t kBatch = 2;

Numbers normals(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Numbers values(static_cast<size_t>(n));
  for (double& value : values) value = normal(random);
  return values;
}

// Pixels [B, C, size, size] that are seen as rows of another height and width, with as many.
struct Shown {
  int64_t channels, size, height, width;
};

using Layer = std::function<Picture(Blocks&, const Picture&)>;

// The layer on such a picture, with the output "y", and "loss", the sum of y * dout.
Graph graph_of(const Shown& shown, const Layer& layer,
               BatchStatistics statistics = BatchStatistics::gathered) {
  const ModelSpec spec =
      resolved({.kind = ModelKind::resnet, .image_size = shown.size, .channels = shown.channels});
  const auto apply = [&](Blocks& b) {
    Picture picture = picture_of(b, b.input("pixels"));
    picture.height = shown.height, picture.width = shown.width;
    return layer(b, picture);
  };
  Blocks declared(spec);
  apply(declared);
  Blocks b(spec, {.batch = kBatch, .statistics = statistics}, {}, declared.parameters());
  const Picture y = apply(b);
  Builder& builder = b.builder();
  const ValueId dout = builder.input(InputKind::batch, "dout", real_type(b.shape(y.x)));
  builder.output("y", y.x);
  builder.output("loss", builder.reduce_sum(builder.mul(y.x, dout), {0, 1}));
  return b.take_graph();
}

// With random values for every input, those of variances above 0.
reference::Tensors inputs_of(const Graph& graph) {
  reference::Tensors inputs;
  unsigned seed = 1;
  for (const GraphInput& input : graph.inputs) {
    Numbers values = normals(graph.type(input.value).n_elems(), seed++);
    if (input.name.ends_with("running_var"))
      for (double& value : values) value = 0.5 + std::abs(value);
    inputs[input.name] = values;
  }
  return inputs;
}

struct Convolution {
  int64_t kernel, stride, padding, dilation, groups;
  Shown shown;
  int64_t n_out;
};
const Convolution kConvolutions[] = {
    {3, 1, 1, 1, 1, {3, 6, 6, 6}, 4}, {1, 1, 0, 1, 1, {3, 4, 4, 4}, 2},
    {1, 2, 0, 1, 1, {2, 6, 6, 6}, 3}, {3, 2, 1, 1, 1, {2, 6, 4, 9}, 3},
    {5, 1, 2, 1, 1, {1, 6, 6, 6}, 2}, {7, 2, 3, 1, 1, {3, 8, 16, 4}, 2},
    {3, 1, 0, 2, 1, {2, 6, 6, 6}, 2}, {2, 3, 1, 2, 1, {2, 6, 6, 6}, 2},
    {3, 1, 1, 1, 2, {4, 4, 4, 4}, 6}, {3, 2, 1, 1, 4, {4, 6, 6, 6}, 4},
    {3, 2, 2, 2, 2, {2, 8, 8, 8}, 4}, {6, 1, 0, 1, 1, {2, 6, 6, 6}, 3},
};

// Each product of a convolution: where it reads the picture and the weight, and what it adds to.
void for_each_product(const Convolution& c, int64_t rows, int64_t columns,
                      const std::function<void(size_t x, size_t w, size_t y)>& f) {
  const auto& [channels, size, height, width] = c.shown;
  const int64_t n_in = channels / c.groups, n_each = c.n_out / c.groups;
  for (int64_t n = 0; n < kBatch; ++n)
    for (int64_t p = 0; p < rows; ++p)
      for (int64_t q = 0; q < columns; ++q)
        for (int64_t o = 0; o < c.n_out; ++o)
          for (int64_t k = 0; k < n_in; ++k)
            for (int64_t i = 0; i < c.kernel; ++i)
              for (int64_t j = 0; j < c.kernel; ++j) {
                const int64_t row = p * c.stride + i * c.dilation - c.padding;
                const int64_t column = q * c.stride + j * c.dilation - c.padding;
                if (row < 0 || row >= height || column < 0 || column >= width) continue;
                // Pixels lie as [C, size, size] in files.
                const int64_t channel = o / n_each * n_in + k, pixel = row * width + column;
                const int64_t x = (n * channels + channel) * size * size + pixel;
                const int64_t w = ((o * c.kernel + i) * c.kernel + j) * n_in + k;
                const int64_t y = ((n * rows + p) * columns + q) * c.n_out + o;
                f(static_cast<size_t>(x), static_cast<size_t>(w), static_cast<size_t>(y));
              }
}

void expect_near(const Numbers& got, const Numbers& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-9) << what << i;
}

TEST(Convolutions, and_their_gradients_are_the_sums_of_products_that_define_them) {
  for (const Convolution& c : kConvolutions) {
    Picture result;
    const Graph graph = graph_of(c.shown, [&](Blocks& b, const Picture& picture) {
      return result = convolution(b, picture, "conv", c.n_out,
                                  {.kernel = c.kernel,
                                   .stride = c.stride,
                                   .padding = c.padding,
                                   .dilation = c.dilation,
                                   .groups = c.groups});
    });
    const auto inputs = inputs_of(graph);
    const Graph with_gradients = autodiff(graph, {.with_respect_to = {"pixels", "conv.weight"}});
    const auto got = reference::interpret(with_gradients, inputs);
    const Numbers &x = inputs.at("pixels"), &w = inputs.at("conv.weight"),
                  &dout = inputs.at("dout");
    Numbers y(dout.size()), dx(x.size()), dw(w.size());
    for_each_product(c, result.height, result.width, [&](size_t i, size_t j, size_t k) {
      y[k] += x[i] * w[j];
      dx[i] += w[j] * dout[k];
      dw[j] += x[i] * dout[k];
    });
    const std::string what =
        fmt::format("kernel {} stride {} padding {} dilation {} groups {}: ", c.kernel, c.stride,
                    c.padding, c.dilation, c.groups);
    expect_near(got.at("y"), y, what + "y ");
    expect_near(got.at("grad:pixels"), dx, what + "dx ");
    expect_near(got.at("grad:conv.weight"), dw, what + "dw ");
  }
}

TEST(Convolutions, are_an_op_each_with_the_same_numbers_where_a_target_takes_them) {
  const Graph graph = graph_of({3, 6, 6, 6}, [](Blocks& b, const Picture& picture) {
    return convolution(b, picture, "conv", 4, {.stride = 2, .padding = 1});
  });
  const Graph typed =
      assign_types(simplify(autodiff(graph, {.with_respect_to = {"pixels", "conv.weight"}})),
                   Dtype::f32, Dtype::f32);
  const auto inputs = inputs_of(graph);
  const auto expected = reference::interpret(typed, inputs);
  for (const bool takes : {false, true}) {
    const Graph fused = fuse(typed, nullptr, [&](const Graph&, const Node& form) {
      return takes && form.op == OpCode::convolution;
    });
    const auto n_of = [&](OpCode op) { return std::ranges::count(fused.nodes, op, &Node::op); };
    EXPECT_EQ(n_of(OpCode::convolution), takes ? 3 : 0);
    EXPECT_EQ(n_of(OpCode::unfold) + n_of(OpCode::fold) + n_of(OpCode::gemm), takes ? 0 : 5);
    const auto got = reference::interpret(fused, inputs);
    for (const auto& [name, values] : expected) {
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(got.at(name)[i], values[i], 1e-5) << name << i;
    }
  }
}

TEST(Convolutions, have_weights_of_files_with_channels_behind_the_outputs) {
  const ModelSpec spec = resolved({.kind = ModelKind::resnet, .image_size = 8, .channels = 4});
  Blocks b(spec);
  convolution(b, picture_of(b, b.input("pixels")), "conv", 6,
              {.kernel = 3, .padding = 1, .groups = 2, .bias = WithBias::yes});
  ASSERT_EQ(b.parameters().size(), 2u);
  const ParameterSpec& weight = b.parameters()[0];
  EXPECT_EQ(weight.shape, (Shape{6, 18}));
  EXPECT_EQ(weight.file_shape, (Shape{6, 2, 3, 3}));
  EXPECT_TRUE(weight.channels_last);
  EXPECT_EQ(b.parameters()[1].name, "conv.bias");
}

TEST(Convolutions, that_cannot_be_are_refused_in_one_sentence) {
  const struct {
    ConvolutionOptions options;
    int64_t n_out;
    const char* error;
  } cases[] = {
      {{.kernel = 9}, 2, "[convolution] conv: expected a window of at most 6 pixels"},
      {{.kernel = 3, .dilation = 4}, 2, "a window of at most 6 pixels, those of the padded"},
      {{.groups = 3}, 6, "[convolution] conv: expected groups that divide 4 channels and make 6"},
      {{.groups = 2}, 3, "expected groups that divide 4 channels and make 3, got 2"},
      {{.stride = 0}, 2, "expected kernel, stride, dilation and groups from 1"},
      {{.padding = -1}, 2, "and padding from 0, got 3, 1, 1, 1 and -1"},
  };
  for (const auto& one : cases) {
    try {
      graph_of({4, 6, 6, 6}, [&](Blocks& b, const Picture& picture) {
        return convolution(b, picture, "conv", one.n_out, one.options);
      });
      FAIL() << one.error;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(one.error));
    }
  }
}

TEST(Pooling, takes_the_largest_of_each_window_and_none_of_the_border) {
  const Shown shown = {2, 6, 6, 6};
  const Graph graph = graph_of(shown, [](Blocks& b, const Picture& picture) {
    return max_pool(b, picture, "pool", {.kernel = 3, .stride = 2, .padding = 1});
  });
  auto inputs = inputs_of(graph);
  for (double& x : inputs.at("pixels")) x -= 10;  // below zero
  const auto got = reference::interpret(graph, inputs).at("y");
  size_t at = 0;
  for (int64_t n = 0; n < kBatch; ++n)
    for (int64_t p = 0; p < 3; ++p)
      for (int64_t q = 0; q < 3; ++q)
        for (int64_t c = 0; c < 2; ++c) {
          double largest = -INFINITY;
          for (int64_t i = std::max<int64_t>(0, 2 * p - 1); i <= 2 * p + 1; ++i)
            for (int64_t j = std::max<int64_t>(0, 2 * q - 1); j <= 2 * q + 1; ++j)
              largest = std::max(
                  largest, inputs.at("pixels")[static_cast<size_t>(((n * 2 + c) * 6 + i) * 6 + j)]);
          EXPECT_EQ(got[at++], largest);
        }
}

Picture norm(Blocks& b, const Picture& picture) {
  return batch_norm(b, picture, "bn");
}

// Values of one channel: pixel r of the batch, as the norm's rows stand.
struct Channel {
  Numbers x, dy;
  double mean = 0, variance = 0;
};
Channel channel_of(const reference::Tensors& inputs, const Shown& shown, size_t c) {
  Channel channel;
  const auto n = static_cast<size_t>(shown.size * shown.size),
             width = static_cast<size_t>(shown.channels);
  for (size_t r = 0; r < kBatch * n; ++r) {
    channel.x.push_back(inputs.at("pixels")[(r / n * width + c) * n + r % n]);
    channel.dy.push_back(inputs.at("dout")[r * width + c]);
  }
  const auto rows = static_cast<double>(channel.x.size());
  for (const double x : channel.x) channel.mean += x / rows;
  for (const double x : channel.x) channel.variance += std::pow(x - channel.mean, 2) / rows;
  return channel;
}

TEST(BatchNorm, of_its_own_batch_has_the_textbook_gradient_and_moves_what_it_gathers) {
  const Shown shown = {3, 4, 4, 4};
  const Graph graph = graph_of(shown, norm, BatchStatistics::own);
  const auto inputs = inputs_of(graph);
  const auto got = reference::interpret(
      autodiff(graph, {.with_respect_to = {"pixels", "bn.weight", "bn.bias"}}), inputs);
  for (size_t c = 0; c < 3; ++c) {
    const Channel channel = channel_of(inputs, shown, c);
    const auto n = static_cast<double>(channel.x.size());
    const double rstd = 1 / std::sqrt(channel.variance + 1e-5), w = inputs.at("bn.weight")[c];
    double sum = 0, along = 0;
    for (size_t r = 0; r < channel.x.size(); ++r) {
      const double normal = (channel.x[r] - channel.mean) * rstd;
      sum += channel.dy[r];
      along += channel.dy[r] * normal;
      EXPECT_NEAR(got.at("y")[r * 3 + c], normal * w + inputs.at("bn.bias")[c], 1e-9);
    }
    EXPECT_NEAR(got.at("grad:bn.weight")[c], along, 1e-9);
    EXPECT_NEAR(got.at("grad:bn.bias")[c], sum, 1e-9);
    for (size_t r = 0; r < channel.x.size(); ++r) {
      const double normal = (channel.x[r] - channel.mean) * rstd;
      const double dx = w * rstd * (channel.dy[r] - sum / n - normal * along / n);
      EXPECT_NEAR(got.at("grad:pixels")[(r / 16 * 3 + c) * 16 + r % 16], dx, 1e-9);
    }
    EXPECT_NEAR(got.at("next:bn.running_mean")[c],
                0.9 * inputs.at("bn.running_mean")[c] + 0.1 * channel.mean, 1e-12);
    EXPECT_NEAR(got.at("next:bn.running_var")[c],
                0.9 * inputs.at("bn.running_var")[c] + 0.1 * channel.variance * n / (n - 1), 1e-12);
  }
}

TEST(BatchNorm, that_was_gathered_is_one_line_a_channel) {
  const Shown shown = {3, 4, 4, 4};
  const Graph graph = graph_of(shown, norm);
  const auto inputs = inputs_of(graph);
  const auto got = reference::interpret(
      autodiff(graph, {.with_respect_to = {"pixels", "bn.weight", "bn.bias"}}), inputs);
  for (size_t c = 0; c < 3; ++c) {
    const Channel channel = channel_of(inputs, shown, c);
    const double rstd = 1 / std::sqrt(inputs.at("bn.running_var")[c] + 1e-5),
                 w = inputs.at("bn.weight")[c];
    double sum = 0, along = 0;
    for (size_t r = 0; r < channel.x.size(); ++r) {
      const double normal = (channel.x[r] - inputs.at("bn.running_mean")[c]) * rstd;
      sum += channel.dy[r];
      along += channel.dy[r] * normal;
      EXPECT_NEAR(got.at("y")[r * 3 + c], normal * w + inputs.at("bn.bias")[c], 1e-9);
      EXPECT_NEAR(got.at("grad:pixels")[(r / 16 * 3 + c) * 16 + r % 16], w * rstd * channel.dy[r],
                  1e-9);
    }
    EXPECT_NEAR(got.at("grad:bn.weight")[c], along, 1e-9);
    EXPECT_NEAR(got.at("grad:bn.bias")[c], sum, 1e-9);
  }
  EXPECT_EQ(graph.outputs.size(), 2u);  // nothing moves
}

}  // namespace
}  // namespace octet::convolution_test
