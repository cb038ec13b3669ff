// Scales of a sub-graph's own, and rescales by what the step before measured.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "ir/custom_scale.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/scalify.h"

namespace octet::scalify_primitives_test {
namespace {

using reference::Tensors;

Tensors run(const Graph& logical, const Tensors& inputs) {
  const Graph typed = assign_types(logical, Dtype::f32, Dtype::f32);
  verify(typed);
  return reference::interpret(typed, inputs);
}

// Graph of x and v, with a weight that the sub-graph reads besides: loss = sum((x w) v).
Graph custom_graph(const CustomScaleRules& rules) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::parameter, "x", real_type({4, 8}));
  const ValueId v = b.input(InputKind::parameter, "v", real_type({4, 8}));
  const ValueId w = b.input(InputKind::parameter, "w", real_type({8, 8}));
  const SubGraph f = [w](Builder& inside, const std::vector<ValueId>& in) {
    return inside.mul(inside.gemm(in[0], w, {.trans_b = true}), in[1]);
  };
  const ValueId y = custom_scale(b, f, {x, v}, rules);
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {y});
  b.output("scale", parts[DataScale::scale]);
  b.output("loss", b.reduce_sum(y, {0, 1}));
  return graph;
}

Tensors custom_inputs() {
  Tensors inputs;
  for (const auto& [name, n] : {std::pair("x", 32), std::pair("v", 32), std::pair("w", 64)}) {
    for (int i = 0; i < n; ++i)
      inputs[name].push_back(static_cast<double>((i * 37) % 17 - 8) / 16 + 0.03125);
  }
  return inputs;
}

// The graph with each gradient's scale as an output too.
Graph with_gradient_scales(const Graph& differentiated) {
  Graph graph = differentiated;
  Builder b(graph);
  for (const char* name : {"x", "v", "w"}) {
    const ValueId gradient = graph.find_output(gradient_name(name))->value;
    b.output(std::string("scale:") + name,
             b.emit(OpCode::data_scale, NoAttrs{}, {gradient})[DataScale::scale]);
  }
  return graph;
}

constexpr int kX = 3, kV = -2;
const ScalifyOptions kScaled{.input_scales = {{"x", kX}, {"v", kV}, {"w", 1}}};
const CustomScaleRules kRules{
    .result = {.powers = {2, -1}, .log2 = 5},
    .gradients = {{.powers = {1, 0, 1}, .log2 = -3}, {.powers = {1, 1, 0}, .log2 = 4}}};

Tensors at_scales(Tensors inputs) {
  for (const auto& [name, log2] : kScaled.input_scales) {
    for (double& value : inputs[name]) value = std::ldexp(value, -log2);
  }
  return inputs;
}

TEST(CustomScale, a_sub_graph_and_its_gradients_carry_their_own_scales) {
  const Graph graph = with_gradient_scales(autodiff(custom_graph(kRules)));
  const Tensors plain = run(graph, custom_inputs());
  const Tensors scaled = run(scalify(graph, kScaled).graph, at_scales(custom_inputs()));
  EXPECT_EQ(scaled.at("scale")[0], std::exp2(2 * kX - kV + 5));
  // The gradient that comes in is the sum's, of scale 1.
  EXPECT_EQ(scaled.at("scale:x")[0], std::exp2(kV - 3));
  EXPECT_EQ(scaled.at("scale:v")[0], std::exp2(kX + 4));
  for (const char* name : {"scale", "scale:x", "scale:v"}) EXPECT_EQ(plain.at(name)[0], 1) << name;
}

TEST(CustomScale, changes_no_value_and_what_the_sub_graph_reads_besides_has_its_gradient) {
  const Graph with = autodiff(custom_graph(kRules));
  Graph without;
  {
    Builder b(without);
    const ValueId x = b.input(InputKind::parameter, "x", real_type({4, 8}));
    const ValueId v = b.input(InputKind::parameter, "v", real_type({4, 8}));
    const ValueId w = b.input(InputKind::parameter, "w", real_type({8, 8}));
    b.output("loss", b.reduce_sum(b.mul(b.gemm(x, w, {.trans_b = true}), v), {0, 1}));
  }
  const Tensors expected = run(autodiff(without), custom_inputs());
  const Tensors plain = run(with, custom_inputs());
  const Tensors scaled = run(scalify(with, kScaled).graph, at_scales(custom_inputs()));
  for (const char* name : {"loss", "grad:x", "grad:v", "grad:w"}) {
    EXPECT_EQ(plain.at(name), expected.at(name)) << name;
    EXPECT_EQ(scaled.at(name), expected.at(name)) << name;
  }
  double size = 0;
  for (const double g : expected.at("grad:w")) size += std::fabs(g);
  EXPECT_GT(size, 0);
}

TEST(CustomScale, without_rules_for_gradients_the_ops_own_hold) {
  const Graph own = with_gradient_scales(autodiff(custom_graph({.result = kRules.result})));
  const Tensors scaled = run(scalify(own, kScaled).graph, at_scales(custom_inputs()));
  EXPECT_EQ(scaled.at("scale")[0], std::exp2(2 * kX - kV + 5));
  EXPECT_NE(scaled.at("scale:v")[0], std::exp2(kX + 4));
}

TEST(CustomScale, its_graph_prints_and_parses) {
  const Graph graph = autodiff(custom_graph(kRules));
  EXPECT_EQ(parse_graph(print(graph)), graph);
}

TEST(CustomScale, a_rule_with_too_few_powers_is_an_error) {
  EXPECT_THROW(custom_graph({.result = {.powers = {1}}}), Error);
  EXPECT_THROW(custom_graph({.result = {.powers = {1, 1}}, .gradients = {{{1, 1}}, {{1, 1}}}}),
               Error);
}

Graph delayed_graph(Direction direction) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::parameter, "x", real_type({8}));
  const ValueId size = b.input(InputKind::batch, "size", real_type({8}));
  const ValueId y = delayed_rescale(b, x, "site", {.direction = direction});
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {y});
  b.output("data", parts[DataScale::data]);
  b.output("loss", b.reduce_sum(b.mul(y, size), {0}));
  return autodiff(graph);
}

// The state after each of these sizes of x (forward) or of its gradient (backward).
std::vector<double> factors(Direction direction, const std::vector<double>& sizes) {
  const Graph graph = scalify(delayed_graph(direction), {}).graph;
  const std::string state = state_name(StateUse::rescale_factor, "site");
  std::vector<double> result;
  double factor = 0;  // as states begin
  for (const double size : sizes) {
    const bool forward = direction == Direction::forward;
    const std::vector<double> of_size(8, size), ones(8, 1);
    const Tensors out = run(
        graph,
        {{"x", forward ? of_size : ones}, {"size", forward ? ones : of_size}, {state, {factor}}});
    // The value is the same, whatever the state is.
    EXPECT_EQ(out.at("loss")[0], static_cast<float>(8 * size));
    EXPECT_EQ(out.at("grad:x")[0], forward ? 1 : static_cast<float>(size));
    const double applied = factor == 0 ? 1 : factor;
    if (forward) {
      EXPECT_EQ(out.at("data")[0], static_cast<float>(size / applied));
    }
    factor = out.at(next_name(state))[0];
    result.push_back(factor);
  }
  return result;
}

TEST(DelayedRescale, takes_the_factor_of_the_step_before_and_moves_it_by_four_bits) {
  const std::vector<double> sizes = {4, 4, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9};
  const std::vector<double> expected = {4, 4, 0x1p-2, 0x1p-6, 0x1p-9, 0x1p-9};
  EXPECT_EQ(factors(Direction::forward, sizes), expected);
  EXPECT_EQ(factors(Direction::backward, sizes), expected);
}

TEST(DelayedRescale, is_left_alone_by_data_without_a_norm) {
  EXPECT_EQ(factors(Direction::forward, {8, 0, 8}), (std::vector<double>{8, 8, 8}));
}

TEST(DelayedRescale, means_the_identity_without_the_pass) {
  const Graph graph = delayed_graph(Direction::forward);
  const std::string state = state_name(StateUse::rescale_factor, "site");
  const std::vector<double> x = {1, -2, 3, 4, 5, -6, 7, 8}, ones(8, 1);
  const Tensors out = run(graph, {{"x", x}, {"size", ones}, {state, {16}}});
  EXPECT_EQ(out.at("data"), x);
  EXPECT_EQ(out.at(next_name(state))[0], 16);
}

// Only lowering asks for the maxima of a gradient: none has a scale to propagate.
TEST(Scalify, a_norm_gradient_with_an_amax_is_refused) {
  for (const OpCode op : {OpCode::rms_norm_grad, OpCode::layer_norm_grad}) {
    Graph graph;
    Builder b(graph);
    ValueIds operands;
    for (const char* name : {"dy", "x"})
      operands.push_back(b.input(InputKind::parameter, name, real_type({4, 8})));
    const size_t n_statistics = op == OpCode::rms_norm_grad ? 1 : 2;
    for (size_t i = 0; i < n_statistics; ++i)
      operands.push_back(b.input(InputKind::parameter, std::string(i + 1, 's'), real_type({4})));
    operands.push_back(b.input(InputKind::parameter, "w", real_type({8})));
    b.output("dx", b.emit(op, NormAttrs{.amax = true}, operands)[0]);
    EXPECT_THROW(scalify(graph, {}), Error) << op_def(op).name;
  }
}

// sum(y y) of a convolution, by its op or by the two ops that it is.
Graph convolution_graph(bool by_steps) {
  const UnfoldAttrs windows{.picture = {4, 5},
                            .window = {2, 3},
                            .stride = {1, 2},
                            .dilation = {1, 1},
                            .low = {1, 1},
                            .high = {0, 1}};
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::parameter, "x", real_type({2, 4, 5, 2}));
  const ValueId w = b.input(InputKind::parameter, "w", real_type({3, 12}));
  const ValueId y =
      by_steps ? b.gemm(b.emit1(OpCode::unfold, windows, {x}), w,
                        {.trans_b = true, .role = GemmRole::forward})
               : b.emit1(OpCode::convolution, ConvolutionAttrs{.windows = windows}, {x, w});
  b.output("loss", b.reduce_sum(b.mul(y, y), {0, 1}));
  return graph;
}

TEST(Convolution, its_gradients_and_scales_are_those_of_its_steps) {
  Tensors inputs;
  for (const auto& [name, n] : {std::pair("x", 80), std::pair("w", 36)}) {
    for (int i = 0; i < n; ++i)
      inputs[name].push_back(static_cast<double>((i * 29) % 23 - 11) / 16 + 0.03125);
  }
  const Tensors expected = run(autodiff(convolution_graph(true)), inputs);
  const Graph with = autodiff(convolution_graph(false));
  const Tensors plain = run(with, inputs);
  Tensors at_own_scales = inputs;
  for (double& value : at_own_scales["x"]) value = std::ldexp(value, -5);
  const Scalified scaled = scalify(with, {.input_scales = {{"x", 5}}});
  EXPECT_GT(std::ranges::max(scaled.scale), 5);
  const Tensors got = run(scaled.graph, at_own_scales);
  for (const char* name : {"loss", "grad:x", "grad:w"}) {
    EXPECT_EQ(plain.at(name), expected.at(name)) << name;
    EXPECT_EQ(got.at(name), expected.at(name)) << name;
  }
}

}  // namespace
}  // namespace octet::scalify_primitives_test
