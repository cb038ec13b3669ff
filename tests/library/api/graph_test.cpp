// octet::GraphFunction as other projects use it.
#include "octet/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include "octet/error.h"

namespace octet {
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
  EXPECT_THAT(error_of([&] { f.scalify({.rounding = "up"}); }), HasSubstr("nearest"));
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
}  // namespace octet
