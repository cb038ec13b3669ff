// Every loss against PyTorch's (losses.json, make_golden.py): value, metrics, and the gradient of
// the model's output; whole and in two micro-batches, on the reference interpreter and on the CPU's
// kernels under two recipes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "backends/cpu/backend.h"
#include "backends/cpu/reference/reference.h"
#include "base/error.h"
#include "nn/blocks.h"
#include "passes/autodiff.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::golden_losses {
namespace {

using Json = nlohmann::json;
using reference::Tensors;

constexpr double kTolerance = 1e-5;

std::vector<Json> read_cases() {
  std::ifstream file(OCTET_SOURCE_DIR "/tests/golden/losses/losses.json");
  return Json::parse(file).get<std::vector<Json>>();
}

std::vector<double> numbers(const Json& table) {
  std::vector<double> values;
  for (const Json& x : table[1])
    values.push_back(x.is_boolean() ? static_cast<double>(x.get<bool>()) : x.get<double>());
  return values;
}

WeightedLoss loss_of(const Json& c) {
  WeightedLoss loss{.name = c["loss"]};
  loss.options.smoothing = c.value("smoothing", loss.options.smoothing);
  loss.options.temperature = c.value("temperature", loss.options.temperature);
  loss.options.beta = c.value("beta", loss.options.beta);
  loss.options.gamma = c.value("gamma", loss.options.gamma);
  loss.options.negatives = c.value("negatives", loss.options.negatives);
  return loss;
}

// The loss over `share` of a case's rows as a graph whose one parameter is the model's output.
Graph graph_of(const Json& c, int64_t share) {
  const WeightedLoss loss = loss_of(c);
  const BatchSize size{.batch = c["rows"].get<int64_t>() / share, .seq = c["seq"]};
  Shape shape = c["output"][0];
  const ModelSpec spec = resolved({.kind = ModelKind::llama,
                                   .hidden = 8,
                                   .layers = 1,
                                   .heads = 1,
                                   .ffn = 8,
                                   .vocab = 8,
                                   .classes = shape[1]});
  Blocks blocks(spec, size, {loss}, {});
  shape[0] /= share;
  const ValueId output = blocks.builder().input(InputKind::parameter, "output",
                                                {.dtype = Dtype::real, .shape = shape});
  const LossDef& def = *find_loss(loss.name);
  blocks.enter(-1, "");
  const LossValues values = def.build(
      blocks, {.output = output, .inv_n = blocks.input("inv_n"), .options = loss.options});
  blocks.builder().output("loss", values.loss);
  for (const Metric& metric : values.metrics)
    blocks.builder().output(std::string(metric.name), metric.value);
  return simplify(autodiff(blocks.take_graph(), {}));
}

// Elements [i, i + 1) / n of a table whose first extent counts rows or tokens.
std::vector<double> part(std::vector<double> values, int64_t i, int64_t n) {
  const auto length = static_cast<int64_t>(values.size()) / n;
  return {values.begin() + i * length, values.begin() + (i + 1) * length};
}

Tensors inputs_of(const Json& c, const Graph& graph, int64_t i, int64_t n) {
  Tensors inputs;
  for (const GraphInput& input : graph.inputs) {
    auto& values = inputs[input.name];
    const auto n_elems = static_cast<size_t>(graph.type(input.value).n_elems());
    if (input.name == "output") {
      values = part(numbers(c["output"]), i, n);
    } else if (input.name == "inv_n") {
      values = {1 / c["n"].get<double>()};
    } else if (c["inputs"].contains(input.name)) {
      values = part(numbers(c["inputs"][input.name]), i, n);
    } else {
      values.assign(n_elems, 0.0);  // the model's own inputs, which no loss reads
    }
    EXPECT_EQ(values.size(), n_elems) << input.name;
  }
  return inputs;
}

Tensors run_cpu(const Graph& logical, const Tensors& inputs, std::string_view recipe) {
  static cpu::Backend backend = cpu::make_backend(3, cpu::detect_isa());
  const Graph typed = find_recipe(recipe).apply(find_recipe(recipe), logical, {});
  Layout layout;
  layout.add_inputs(typed);
  const Plan plan = make_plan(typed, layout, *backend.catalogue);
  Arenas arenas(*backend.device, plan.arena_bytes);
  BoundPlan bound(plan, *backend.catalogue, arenas);
  for (const GraphInput& input : plan.graph.inputs) {
    const TensorType& type = plan.graph.type(input.value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    reference::store(type.dtype, inputs.at(input.name), bytes.data());
    bound.write_input(input.name, bytes.data(), type.n_bytes());
  }
  bound.run();
  Tensors outputs;
  for (const GraphOutput& output : plan.graph.outputs) {
    const TensorType& type = plan.graph.type(output.value);
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    bound.read_output(output.name, bytes.data(), type.n_bytes());
    auto& values = outputs[output.name];
    values.resize(static_cast<size_t>(type.n_elems()));
    reference::load(type.dtype, bytes.data(), values);
  }
  return outputs;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected,
                  double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + largest)) << what << "[" << i << "]";
}

std::string name_of(const Json& c) {
  std::string name = c["loss"];
  for (const char* option : {"smoothing", "temperature", "beta", "gamma"})
    if (c.contains(option)) name += fmt::format(" {}={}", option, c[option].get<double>());
  return name;
}

void expect_pytorchs(const Json& c, const Tensors& results, const std::string& what) {
  expect_close(results.at("loss"), {c["value"].get<double>()}, kTolerance, what + " loss");
  for (const auto& [name, values] : c["metrics"].items())
    expect_close(results.at(name), numbers(values), kTolerance, what + " " + name);
  expect_close(results.at("grad:output"), numbers(c["gradient"]), kTolerance, what + " gradient");
}

TEST(Losses, have_pytorchs_values_and_gradients) {
  std::set<std::string> seen;
  for (const Json& c : read_cases()) {
    const Graph graph = graph_of(c, 1);
    const Tensors inputs = inputs_of(c, graph, 0, 1);
    expect_pytorchs(c, reference::interpret(graph, inputs), name_of(c) + " on the reference");
    expect_pytorchs(c, run_cpu(graph, inputs, "fp32"), name_of(c) + " on the CPU");
    seen.insert(c["loss"].get<std::string>());
  }
  for (const LossDef* loss : losses())
    EXPECT_TRUE(seen.contains(std::string(loss->name))) << loss->name;
}

TEST(Losses, name_their_metrics_in_order) {
  for (const Json& c : read_cases()) {
    const Graph graph = graph_of(c, 1);
    std::vector<std::string_view> names;
    for (const GraphOutput& output : graph.outputs)
      if (output.name != "loss" && output.name != "grad:output") names.push_back(output.name);
    EXPECT_EQ(names, find_loss(c["loss"].get<std::string>())->metrics) << name_of(c);
  }
}

TEST(Losses, do_not_depend_on_how_rows_are_cut) {
  for (const Json& c : read_cases()) {
    if (c["loss"] == "contrastive") continue;  // whose other pairs are the micro-batch's
    const int64_t n = c["rows"].get<int64_t>() % 2 == 0 ? 2 : 5;
    const Graph graph = graph_of(c, n);
    double loss = 0;
    std::vector<double> gradient;
    for (int64_t i = 0; i < n; ++i) {
      const Tensors results = run_cpu(graph, inputs_of(c, graph, i, n), "fp32");
      loss += results.at("loss")[0];
      gradient.insert(gradient.end(), results.at("grad:output").begin(),
                      results.at("grad:output").end());
    }
    expect_close({loss}, {c["value"].get<double>()}, kTolerance, name_of(c));
    expect_close(gradient, numbers(c["gradient"]), kTolerance, name_of(c));
  }
}

// Each with an N of its own: 20 tokens, and 2 pairs.
TEST(Losses, of_several_the_weighted_sum_is_minimized) {
  const ModelSpec spec = {
      .kind = ModelKind::llama, .hidden = 8, .layers = 1, .heads = 2, .ffn = 8, .vocab = 7};
  const auto run = [&](const std::vector<WeightedLoss>& losses) {
    const Graph graph =
        autodiff(build_model(spec, {.batch = 4, .seq = 5}, ModelOutputs::loss, losses).graph);
    Tensors inputs;
    for (const GraphInput& input : graph.inputs) {
      auto& values = inputs[input.name];
      values.resize(static_cast<size_t>(graph.type(input.value).n_elems()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = is_float(graph.type(input.value).dtype)
                        ? std::cos(0.7 * static_cast<double>(i + input.name.size()))
                        : static_cast<double>(i * i % 7);
      if (input.name == "positions")
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 5);
    }
    inputs["inv_n"] = {losses[0].name == "pairwise" ? 1 / 2.0 : 1 / 20.0};
    if (inputs.contains("inv_n.pairwise")) inputs["inv_n.pairwise"] = {1 / 2.0};
    return reference::interpret(graph, inputs);
  };
  const Tensors tokens = run({{.name = "next_token"}}), pairs = run({{.name = "pairwise"}});
  const Tensors both = run({{.name = "next_token"}, {.name = "pairwise", .weight = 0.25}});
  EXPECT_EQ(both.at("next_token.nll"), tokens.at("nll"));
  EXPECT_EQ(both.at("pairwise.margin"), pairs.at("margin"));
  for (const auto& [name, values] : tokens) {
    if (name != "loss" && !name.starts_with("grad:")) continue;
    std::vector<double> expected = values;
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += 0.25 * pairs.at(name)[i];
    expect_close(both.at(name), expected, 1e-12, name);
  }
}

TEST(Losses, want_batches_of_whole_samples_and_outputs_that_are_there) {
  const ModelSpec spec = {
      .kind = ModelKind::llama, .hidden = 8, .layers = 1, .heads = 2, .ffn = 8, .vocab = 7};
  const auto error_of = [&](const char* loss, int64_t batch) -> std::string {
    try {
      build_model(spec, {.batch = batch, .seq = 5}, ModelOutputs::loss, {{.name = loss}});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of("pairwise", 3),
            "[train] loss: expected a batch of whole samples of 2 rows, got 3 rows");
  EXPECT_EQ(error_of("classes", 4),
            "[train] loss: classes reads the output 'classes', which llama has not");
}

// The model's output is rounded to BF16, by at most 2^-9 of it; what is made of it is not rounded
// again.
TEST(Losses, sum_in_f32_under_bf16) {
  for (const Json& c : read_cases()) {
    const Graph graph = graph_of(c, 1);
    Tensors inputs = inputs_of(c, graph, 0, 1);
    for (double& x : inputs["output"]) x = reference::round_to(Dtype::bf16, x);
    const Tensors expected = reference::interpret(graph, inputs);
    const Tensors actual = run_cpu(graph, inputs, "bf16");
    for (const auto& [name, values] : expected) {
      if (name == "grad:output") continue;
      expect_close(actual.at(name), values, kTolerance, name_of(c) + " " + name);
    }
  }
}

}  // namespace
}  // namespace octet::golden_losses
