// Every model against the same model in PyTorch: logits, loss, all gradients, one AdamW step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/reference/reference.h"
#include "golden.h"
#include "optim/adamw.h"
#include "passes/autodiff.h"

namespace octet::golden {
namespace {

// PyTorch's own f32 is at most 3e-6 of a tensor's largest magnitude from the same model in f64
// (make_goldens.py prints it); ours may be as far on the other side, and a little more.
constexpr double kTolerance = 1e-5;

class GoldenModel : public testing::TestWithParam<std::string> {
 protected:
  const Golden golden_ = load_golden(GetParam());

  Graph build(ModelOutputs outputs) const {
    return build_model(golden_.spec, golden_.batch, outputs).graph;
  }
  // What a graph asks for, and nothing else.
  reference::Tensors run(const Graph& graph) const {
    const auto all = golden_.inputs();
    reference::Tensors inputs;
    for (const GraphInput& input : graph.inputs) inputs[input.name] = all.at(input.name);
    return reference::interpret(graph, inputs);
  }
};

TEST_P(GoldenModel, parameters_are_the_fixtures) {
  size_t n_weights = 0;
  for (const auto& [name, shape] : golden_.shapes) n_weights += name.starts_with("w:") ? 1 : 0;
  const auto parameters = model_parameters(golden_.spec);
  EXPECT_EQ(parameters.size(), n_weights);
  for (const ParameterSpec& p : parameters) {
    EXPECT_EQ(p.shape, golden_.shapes.at("w:" + p.name)) << p.name;
  }
}

TEST_P(GoldenModel, logits_are_pytorchs) {
  const auto results = run(build(ModelOutputs::logits));
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
  EXPECT_NEAR(sum * golden_.inputs().at("inv_n")[0], results.at("loss")[0], 1e-12);
}

TEST_P(GoldenModel, gradients_are_pytorchs) {
  const auto results = run(autodiff(build(ModelOutputs::loss)));
  for (const ParameterSpec& p : model_parameters(golden_.spec)) {
    const auto& got = results.at(gradient_name(p.name));
    EXPECT_LE(relative_distance(got, golden_.at("g:" + p.name)), kTolerance) << p.name;
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
  for (const ParameterSpec& p : model_parameters(golden_.spec)) {
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
  build_update(builder, items,
               {.beta1 = golden_.beta1,
                .beta2 = golden_.beta2,
                .eps = golden_.eps,
                .weight_decay = golden_.weight_decay,
                .master = Master::fp32});
  const auto results = reference::interpret(graph, inputs);
  for (const UpdateItem& item : items) {
    const auto& before = golden_.at("w:" + item.parameter);
    const auto& expected = golden_.at("w1:" + item.parameter);
    EXPECT_LE(relative_distance(results.at("next:" + item.parameter), expected), kTolerance)
        << item.parameter;
    EXPECT_GT(relative_distance(before, expected), 10 * kTolerance) << item.parameter;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenModel, testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

TEST(Goldens, cover_every_kind_of_model_and_of_rotary_scaling) {
  std::vector<std::pair<ModelKind, RopeScaling>> seen;
  for (const std::string& name : golden_names()) {
    const Golden golden = load_golden(name);
    seen.emplace_back(golden.spec.kind, golden.spec.rope_scaling);
  }
  for (const ModelDef* def : models()) {
    EXPECT_THAT(seen, testing::Contains(std::pair(def->kind, RopeScaling::none)));
  }
  for (int i = 0; i < enum_count(RopeScaling{}); ++i) {
    EXPECT_THAT(seen, testing::Contains(std::pair(ModelKind::llama, static_cast<RopeScaling>(i))));
  }
}

}  // namespace
}  // namespace octet::golden
