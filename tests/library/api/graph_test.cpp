// octet::GraphFunction as other projects use it.
#include "octet/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>

#include "octet/error.h"

namespace octet::api_graph_test {
namespace {

using Arrays = std::map<std::string, GraphArray>;

GraphArray normals(const std::vector<int64_t>& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  GraphArray array{shape, {}};
  int64_t n = 1;
  for (const int64_t length : shape) n *= length;
  for (int64_t i = 0; i < n; ++i) array.values.push_back(static_cast<double>(normal(random)));
  return array;
}

// loss = sum((norm(x) w^T)^2).
GraphFunction squares() {
  GraphFunction f("squares");
  const GraphValue x = f.input("x", {4, 8}), w = f.parameter("w", {3, 8});
  const std::vector<GraphValue> norm = f.nodes("rms_norm", {x}, "eps = 0");
  EXPECT_EQ(f.shape(norm.at(1)), std::vector<int64_t>{4});
  const GraphValue y = f.node("gemm", {norm[0], w}, "trans_b = true, role = forward");
  EXPECT_EQ(f.shape(y), (std::vector<int64_t>{4, 3}));
  f.output("y", y);
  f.output("loss", f.node("reduce_sum", {f.node("square", {y})}, "axes = [0,1]"));
  return f;
}

TEST(GraphFunction, values_gradients_and_scales) {
  const GraphFunction f = squares();
  const GraphFunction step = f.passes({"autodiff", "simplify"}), scaled = step.scalify();
  const Machine machine({.threads = 1});
  const Arrays inputs = {{"x", normals({4, 8}, 1)}, {"w", normals({3, 8}, 2)}};
  Arrays plain = CompiledGraph(step, machine)(inputs);
  double loss = 0;
  for (const double y : plain["y"].values) loss += y * y;
  EXPECT_NEAR(plain["loss"].values.at(0), loss, 1e-5 * loss);
  // d loss / d w, w being in the loss twice over: <w, grad> = 2 loss.
  double product = 0;
  for (size_t i = 0; i < 24; ++i)
    product += plain["grad:w"].values.at(i) * inputs.at("w").values[i];
  EXPECT_NEAR(product, 2 * loss, 1e-5 * loss);
  CompiledGraph run(scaled, machine);
  const Arrays first = run(inputs), again = run(inputs);
  for (const auto& [name, array] : plain) {
    EXPECT_EQ(first.at(name).values, array.values) << name;
    EXPECT_EQ(again.at(name).values, array.values) << name;
    EXPECT_EQ(first.at(name).shape, array.shape) << name;
  }
  EXPECT_EQ(scaled.scale("loss"), 0);
  bool is_scaled = false;
  for (int32_t id = 0; id < 12; ++id) is_scaled |= scaled.scale(GraphValue{id}) != 0;
  EXPECT_TRUE(is_scaled);
  GraphFunction longer = scaled;
  EXPECT_EQ(longer.scale(longer.node("exp", {GraphValue{0}})), 0);
}

TEST(GraphFunction, copies_share_nothing_and_text_comes_back) {
  const GraphFunction f = squares();
  GraphFunction longer = f;
  longer.output("x", longer.node("exp", {GraphValue{0}}));
  EXPECT_THAT(f.text(), testing::Not(testing::HasSubstr("exp(")));
  EXPECT_EQ(GraphFunction::parse(longer.text()).text(), longer.text());
}

TEST(GraphFunction, mistakes_are_errors_that_name_them) {
  GraphFunction f = squares();
  const std::string before = f.text();
  const auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  const GraphValue x{0};
  EXPECT_THAT(error_of([&] { f.node("expp", {x}); }), HasSubstr("expected an op, got expp"));
  EXPECT_THAT(error_of([&] { f.node("exp", {GraphValue{99}}); }), HasSubstr("%99"));
  EXPECT_THAT(error_of([&] { f.node("exp", {x}, "axis = 1"); }), HasSubstr("an attribute"));
  EXPECT_THAT(error_of([&] { f.node("add", {x, GraphValue{1}}); }), HasSubstr("[add]"));
  EXPECT_THAT(error_of([&] { f.input("z", {1}, "f33"); }), HasSubstr("f33"));
  EXPECT_THAT(error_of([&] { f.passes({"fp33"}); }), HasSubstr("fp33"));
  EXPECT_THAT(error_of([&] { f.scalify({.rounding = "upwards"}); }), HasSubstr("nearest"));
  EXPECT_THAT(error_of([&] { f.scalify({.input_rms = {{"z", 1}}}); }), HasSubstr("'z'"));
  EXPECT_THAT(error_of([&] { f.scale("z"); }), HasSubstr("'z' is no output"));
  EXPECT_THAT(error_of([&] { f.input("x", {1}); }), HasSubstr("expected a new input, got 'x'"));
  EXPECT_THAT(error_of([&] { f.output("y", x); }), HasSubstr("expected a new output, got 'y'"));
  EXPECT_EQ(f.text(), before);
  GraphFunction ids("ids");
  ids.output("ids", ids.input("ids", {2}, "i32"));
  CompiledGraph same(ids, Machine({.threads = 1}));
  EXPECT_EQ(same({{"ids", {{2}, {-3, 7}}}}).at("ids").values, (std::vector<double>{-3, 7}));
  for (const double wrong : {1.5, 1e300, std::nan("")})
    EXPECT_THAT(error_of([&] {
                  same({{"ids", {{2}, {0, wrong}}}});
                }),
                HasSubstr("expected integers"));
  CompiledGraph run(f, Machine({.threads = 1}));
  EXPECT_THAT(error_of([&] { run({{"x", normals({4, 8}, 1)}}); }), HasSubstr("'w'"));
  EXPECT_THAT(error_of([&] {
                run({{"x", GraphArray{{4, 8}, {1}}}});
              }),
              HasSubstr("expected 32 values"));
}

// w' = w - g, g the gradient of sum((x w^T)^2) / 64, rescaled by its norm: as data and scale, which
// stay so between calls, and as a value, to the bit.
TEST(GraphFunction, states_keep_data_and_scale_between_calls) {
  GraphFunction f("update");
  const GraphValue x = f.input("x", {4, 8}), w = f.parameter("w", {3, 8});
  const GraphValue y = f.node("gemm", {x, w}, "trans_b = true");
  const GraphValue small = f.node("fill", {}, "shape = [4,3], value = 0.015625");
  f.output("loss",
           f.node("reduce_sum", {f.node("mul", {f.node("mul", {y, y}), small})}, "axes = [0,1]"));
  GraphFunction step = f.passes({"autodiff", "simplify"});
  const GraphValue next = step.node("sub", {step.input_value("w"), step.output_value("grad:w")});
  step.output("next_w", step.node("dynamic_rescale", {next}, "norm = l2"));
  step.erase_output("grad:w");
  step.debug("w", step.output_value("next_w"));
  const GraphFunction scaled = step.scalify({.scaled_inputs = {"w"}, .scaled_outputs = {"next_w"}});
  const Machine machine({.threads = 1});
  CompiledGraph plain_run(step, machine), run(scaled.passes({"fp32"}), machine);
  std::vector<std::string> debugged;
  run.on_debug([&](const std::string& name, const ScaledArray& array) {
    debugged.push_back(name);
    EXPECT_EQ(array.value().values.size(), 24U);
  });
  GraphArray plain = normals({3, 8}, 2);
  for (double& value : plain.values) value *= 40;
  ScaledArray state = octet::scaled(plain);
  EXPECT_EQ(state.scale, 32);
  for (uint32_t call = 0; call < 3; ++call) {
    const GraphArray input = normals({4, 8}, 10 + call);
    const Arrays outputs = plain_run({{"x", input}, {"w", plain}});
    EXPECT_FALSE(outputs.contains("debug:w"));
    const std::map<std::string, ScaledArray> results = run.scaled({{"x", {input}}, {"w", state}});
    EXPECT_EQ(results.at("loss").data.values, outputs.at("loss").values);
    plain = outputs.at("next_w");
    state = results.at("next_w");
    EXPECT_EQ(state.value().values, plain.values);
    EXPECT_EQ(octet::scaled(plain).scale, state.scale);  // near 1 it stays
  }
  EXPECT_EQ(debugged, (std::vector<std::string>{"w", "w", "w"}));
  const auto fault = [&](double scale) {
    try {
      run.scaled({{"x", {normals({4, 8}, 1)}}, {"w", {plain, scale}}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const double scale : {0.0, 3.0, -2.0, std::nan("")})
    EXPECT_THAT(fault(scale), testing::HasSubstr("expected a power of two as scale"));
}

// x [4,8] at a scale a row through y = x w^T: the rows' scales are y's, and values are the plain
// ones.
TEST(GraphFunction, scales_of_rows_pass_a_gemm_and_leave_with_its_result) {
  GraphFunction f("rows");
  const GraphValue x = f.input("x", {4, 8}), w = f.input("w", {3, 8});
  f.output("y", f.node("gemm", {x, w}, "trans_b = true"));
  f.output("measured", f.axis_rescale(x, "channel", "max"));
  const GraphFunction scaled = f.scalify({.scaled_inputs = {"x"},
                                          .scaled_outputs = {"y", "measured"},
                                          .granularities = {{"x", "row"}}});
  EXPECT_EQ(scaled.scale_shape(scaled.output_value("y")), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(scaled.scale_shape(scaled.output_value("measured")), (std::vector<int64_t>{1, 8}));
  EXPECT_EQ(f.scale_shape(x), std::vector<int64_t>{});
  const Machine machine({.threads = 1});
  const GraphArray weight = normals({3, 8}, 2);
  ScaledArray rows{normals({4, 8}, 1), 0.5, {{4, 1}, {1, 0x1p20, 0x1p-20, 8}}};
  const Arrays plain = CompiledGraph(f, machine)({{"x", rows.value()}, {"w", weight}});
  CompiledGraph run(scaled, machine);
  const auto results = run.scaled({{"x", rows}, {"w", {weight}}});
  for (const char* name : {"y", "measured"})
    EXPECT_EQ(results.at(name).value().values, plain.at(name).values) << name;
  EXPECT_EQ(results.at("y").scales.shape, (std::vector<int64_t>{4, 1}));
  // An array without scales has ones.
  const auto ones = run.scaled({{"x", {rows.value()}}, {"w", {weight}}});
  EXPECT_EQ(ones.at("y").value().values, plain.at("y").values);
  rows.scales = {{1, 8}, std::vector<double>(8, 1)};
  EXPECT_THROW(run.scaled({{"x", rows}, {"w", {weight}}}), Error);
  EXPECT_THROW(f.axis_rescale(f.input("v", {8}), "row"), Error);
  EXPECT_THROW(f.scalify({.scaled_inputs = {"x"}, .granularities = {{"x", "tile"}}}), Error);
}

TEST(GraphFunction, rules_of_ones_own_and_rescales_every_few_calls) {
  GraphFunction f("rules");
  const GraphValue x = f.parameter("x", {4, 8}), z = f.parameter("z", {4, 8});
  const GraphValue every = f.periodic_rescale(x, "x", 2, "max");
  const GraphValue product =
      f.custom_scale([&](const std::vector<GraphValue>& in) { return f.node("mul", in); },
                     {every, f.delayed_rescale(z, "z")},
                     [&](const std::vector<GraphValue>& scales) {
                       const GraphValue two = f.node("fill", {}, "shape = [], value = 2");
                       return f.node("maximum", {scales[0], f.node("mul", {scales[1], two})});
                     },
                     {[&](const std::vector<GraphValue>& scales) { return scales[1]; },
                      [&](const std::vector<GraphValue>& scales) { return scales[0]; }});
  f.output("loss", f.node("reduce_sum", {product}, "axes = [0,1]"));
  const std::vector<GraphValue> parts = f.nodes("data_scale", {product});
  f.output("scale", parts[1]);
  f.output("scale_x", f.nodes("data_scale", {every})[1]);
  const GraphFunction step = f.passes({"autodiff", "simplify"}), scaled = step.scalify();
  const Machine machine({.threads = 1});
  CompiledGraph plain(step, machine), run(scaled, machine);
  Arrays states = {{"rescale_factor:x", {{}, {0}}},
                   {"rescale_factor:x.calls", {{}, {0}}},
                   {"rescale_factor:z", {{}, {0}}}};
  for (int call = 0; call < 4; ++call) {
    Arrays inputs = states;
    inputs["x"] = normals({4, 8}, 3), inputs["z"] = normals({4, 8}, 4);
    double most = 0;
    for (double& value : inputs["x"].values) {
      value *= std::exp2(3 * call);
      most = std::max(most, std::fabs(value));
    }
    const Arrays expected = plain(inputs), results = run(inputs);
    for (const char* name : {"loss", "grad:x", "grad:z"})
      EXPECT_EQ(results.at(name).values, expected.at(name).values) << name << call;
    const double scale_x = results.at("scale_x").values[0];
    if (call % 2 == 0) {
      EXPECT_NEAR(std::log2(scale_x), std::log2(most), 0.51) << call;
    } else {
      EXPECT_EQ(scale_x, states["rescale_factor:x"].values[0]) << call;
    }
    const double scale_z = call == 0 ? 1 : states["rescale_factor:z"].values[0];
    EXPECT_EQ(results.at("scale").values[0], std::max(scale_x, 2 * scale_z)) << call;
    for (auto& [name, array] : states) array = results.at("next:" + name);
  }
}

// MNIST is not in the repository; where it lies beside it the example learns it.
TEST(GraphFunction, the_example_trains_fp16_data_with_scales) {
  const std::string folder = OCTET_TEST_DATA "/data/images/mnist";
  if (!std::ifstream(folder + "/train-images-idx3-ubyte.gz"))
    GTEST_SKIP() << "no MNIST in " << folder;
  const std::string unpacked = testing::TempDir() + "octet_mnist";
  const std::string command = "mkdir -p " + unpacked + " && for f in train-images-idx3-ubyte " +
                              "train-labels-idx1-ubyte t10k-images-idx3-ubyte " +
                              "t10k-labels-idx1-ubyte; do gzip -dc " + folder + "/$f.gz > " +
                              unpacked + "/$f || exit 1; done; " + OCTET_MNIST_EXAMPLE + " " +
                              unpacked + " 200";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  double accuracy = 0, scale = 0;
  ASSERT_EQ(std::fscanf(pipe, "accuracy %lf, scales of weights from 2^%lf", &accuracy, &scale), 2);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_GT(accuracy, 0.85);
  EXPECT_LT(scale, 0);
}

TEST(GraphFunction, the_example_shows_what_scales_are_for) {
  std::FILE* pipe = ::popen(OCTET_GRAPH_EXAMPLE, "r");
  ASSERT_NE(pipe, nullptr);
  std::array<double, 3> largest{};
  std::array<char, 32> name{};
  for (double& value : largest) ASSERT_EQ(std::fscanf(pipe, "%31s %lf", name.data(), &value), 2);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_GT(largest[0], 0);
  EXPECT_EQ(largest[1], 0);  // below FP16's range
  EXPECT_NEAR(largest[2], largest[0], 2e-3 * largest[0]);
}

}  // namespace
}  // namespace octet::api_graph_test
