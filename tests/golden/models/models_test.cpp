// Every model against the same model in PyTorch: logits, loss, all gradients, one AdamW step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/expand_updates.h"
#include "engine.h"
#include "golden.h"
#include "optim/optimizer.h"
#include "passes/autodiff.h"

namespace octet::golden {
namespace {

// PyTorch's own f32 is at most 3e-6 of a tensor's largest magnitude from the same model in f64
// (make_goldens.py prints it); ours may be as far on the other side, and a little more.
constexpr double kTolerance = 1e-5;
// Gradients of transformers' models (hf_*) come from f32 sums in other orders.
constexpr double kTransformersTolerance = 1e-4;

struct Case {
  std::string fixture;
  Engine engine;
};

class GoldenModel : public testing::TestWithParam<Case> {
 protected:
  const Golden golden_ = load_golden(GetParam().fixture);

  Graph build(ModelOutputs outputs) const {
    return build_model(golden_.spec, golden_.batch, outputs).graph;
  }
  std::vector<ParameterSpec> trained() const {
    std::vector<ParameterSpec> all = model_parameters(golden_.spec);
    std::erase_if(all, [](const ParameterSpec& p) { return p.is_statistic; });
    return all;
  }
  double magnitude(const std::string& tensor) const {
    double largest = 0;
    for (const double x : golden_.at(tensor)) largest = std::max(largest, std::abs(x));
    return largest;
  }
  reference::Tensors run(const Graph& graph, const reference::Tensors& inputs) const {
    return GetParam().engine.run(graph, inputs);
  }
  reference::Tensors run(const Graph& graph) const { return run(graph, golden_.inputs()); }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : golden_names()) {
    all.push_back({name, kReference});
    all.push_back({name, kCpu});
  }
  return all;
}

TEST_P(GoldenModel, logits_are_pytorchs) {
  const auto results = run(build(ModelOutputs::outputs));
  EXPECT_LE(relative_distance(results.at("logits"), golden_.at("logits")), kTolerance);
}

TEST_P(GoldenModel, loss_is_pytorchs_and_the_scaled_sum_of_nll) {
  const auto results = run(build(ModelOutputs::loss));
  EXPECT_LE(relative_distance(results.at("loss"), golden_.at("loss")), kTolerance);
  double sum = 0;
  for (size_t row = 0; row < results.at("nll").size(); ++row) {
    sum += results.at("nll")[row];
    EXPECT_EQ(results.at("nll")[row] > 0, golden_.at("labels")[row] >= 0) << "row " << row;
  }
  EXPECT_NEAR(sum * golden_.inputs().at("inv_n")[0], results.at("loss")[0],
              kTolerance * golden_.at("loss")[0]);
}

TEST_P(GoldenModel, gradients_are_pytorchs) {
  const auto results = run(autodiff(build(ModelOutputs::loss)));
  const double tolerance =
      GetParam().fixture.starts_with("hf_") ? kTransformersTolerance : kTolerance;
  double largest = 0;
  for (const ParameterSpec& p : trained()) largest = std::max(largest, magnitude("g:" + p.name));
  for (const ParameterSpec& p : trained()) {
    const auto& got = results.at(gradient_name(p.name));
    const auto& expected = golden_.at("g:" + p.name);
    // The bias of keys has no gradient but rounding, since the softmax cancels it: it counts by the
    // model's largest.
    const bool is_rounding = p.name.ends_with("k_proj.bias");
    const double share =
        is_rounding ? std::max(1.0, 1e-3 * largest / magnitude("g:" + p.name)) : 1.0;
    EXPECT_LE(relative_distance(got, expected), tolerance * share) << p.name;
  }
}

// From the fixture's gradients: where a gradient is nothing but rounding (a bias of keys, which the
// softmax cancels), the first step's m / sqrt(v) is the sign of that rounding.
TEST_P(GoldenModel, adamw_step_is_pytorchs) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder builder(graph);
  std::vector<UpdateItem> items;
  reference::Tensors inputs = {{"lr", {golden_.lr}},
                               {"adam_c1", {1 - golden_.beta1}},
                               {"adam_c2", {1 - golden_.beta2}},
                               {"clip", {0}}};
  for (const ParameterSpec& p : trained()) {
    const TensorType type{.dtype = Dtype::f32, .shape = p.shape};
    items.push_back({.parameter = p.name,
                     .weight = builder.input(InputKind::parameter, p.name, type),
                     .gradient = builder.input(InputKind::batch, gradient_name(p.name), type),
                     .decay = p.decay});
    inputs[p.name] = golden_.at("w:" + p.name);
    inputs[gradient_name(p.name)] = golden_.at("g:" + p.name);
    const std::vector<double> zeros(inputs[p.name].size(), 0.0);
    inputs["adam_m:" + p.name] = zeros;
    inputs["adam_v:" + p.name] = zeros;
  }
  const OptimPolicy policy{.beta1 = golden_.beta1,
                           .beta2 = golden_.beta2,
                           .eps = golden_.eps,
                           .weight_decay = golden_.weight_decay,
                           .master = Master::fp32};
  build_update(builder, items, policy);
  const auto results = run(expand_updates(graph, policy), inputs);
  for (const UpdateItem& item : items) {
    const auto& before = golden_.at("w:" + item.parameter);
    const auto& expected = golden_.at("w1:" + item.parameter);
    EXPECT_LE(relative_distance(results.at("next:" + item.parameter), expected), kTolerance)
        << item.parameter;
    EXPECT_GT(relative_distance(before, expected), 10 * kTolerance) << item.parameter;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenModel, testing::ValuesIn(cases()), [](const auto& info) {
  return fmt::format("{}_{}", info.param.fixture, info.param.engine.name);
});

TEST(Goldens, hold_exactly_the_parameters_of_their_models) {
  for (const std::string& name : golden_names()) {
    const Golden golden = load_golden(name);
    size_t n_weights = 0;
    for (const auto& [tensor, shape] : golden.shapes) n_weights += tensor.starts_with("w:") ? 1 : 0;
    const auto parameters = model_parameters(golden.spec);
    EXPECT_EQ(parameters.size(), n_weights) << name;
    for (const ParameterSpec& p : parameters) {
      const Shape& stored = p.file_shape.empty() ? p.shape : p.file_shape;
      EXPECT_EQ(stored, golden.shapes.at("w:" + p.name)) << name << " " << p.name;
    }
  }
}

TEST(Goldens, cover_every_kind_of_model_and_of_rotary_scaling) {
  std::vector<std::pair<ModelKind, RopeScaling>> seen;
  for (const std::string& name : golden_names()) {
    const Golden golden = load_golden(name);
    seen.emplace_back(golden.spec.kind, golden.spec.rope_scaling);
  }
  for (const ModelDef* def : models()) {
    EXPECT_THAT(seen, testing::Contains(testing::Pair(def->kind, testing::_))) << def->name;
  }
  for (int i = 0; i < enum_count(RopeScaling{}); ++i) {
    EXPECT_THAT(seen, testing::Contains(std::pair(ModelKind::llama, static_cast<RopeScaling>(i))));
  }
}

}  // namespace
}  // namespace octet::golden
