// Unit scaling beside the Python package unit-scaling 0.3.5 (tools/make_unit_scaling_golden.py made
// the fixture), and what it is for: at the start all values are near 1, and training needs no other
// scale.
#include "passes/scalify/unit_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backends/cpu/reference/reference.h"
#include "base/json.h"
#include "golden/drawn_weights.h"
#include "passes/autodiff.h"
#include "passes/rewrite/simplify.h"
#include "property/recipes/tiny_training.h"

namespace octet::scalify_unit_scaling_test {
namespace {

using reference::Tensors;

const Json& golden() {
  static const Json json = parse_json(
      posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/unit_scaling.json"), "golden");
  return json;
}

ModelSpec llama(int64_t hidden, int64_t layers, int64_t heads, int64_t ffn, int64_t vocab) {
  return resolved({.kind = ModelKind::llama,
                   .hidden = hidden,
                   .layers = layers,
                   .heads = heads,
                   .ffn = ffn,
                   .vocab = vocab,
                   .max_positions = 64});
}

Graph forward_of(const ModelSpec& spec, const BatchSize& size) {
  return forward_builder(spec)(size, ForwardKind::loss);
}

TEST(UnitScaling, factors_are_the_packages) {
  const auto number = [](const Json& factor, size_t i) {
    return factor["arguments"][i].get<int64_t>();
  };
  const std::map<std::string, std::function<double(const Json&)>> ours = {
      {"gated", [](const Json&) { return unit_scaling::gated_factor(); }},
      {"attention",
       [&](const Json& f) {
         return unit_scaling::attention_factor(AttentionMask::causal, number(f, 0), number(f, 1));
       }},
      {"tau", [&](const Json& f) { return unit_scaling::tau(number(f, 0), number(f, 1)); }},
      {"logits", [&](const Json& f) { return unit_scaling::logits_factor(number(f, 0)); }}};
  EXPECT_EQ(golden()["factors"].size(), 26u);
  for (const Json& factor : golden()["factors"]) {
    const double expected = factor["value"].get<double>();
    EXPECT_NEAR(ours.at(factor["of"])(factor), expected, 1e-12 * expected) << factor.dump();
  }
}

struct GoldenRun {
  ModelSpec spec;
  BatchSize size;
  Tensors inputs;
};

GoldenRun golden_run() {
  const Json& model = golden()["model"];
  const auto of = [&](const char* key) { return model[key].get<int64_t>(); };
  GoldenRun run{.spec = llama(of("hidden"), of("layers"), of("heads"), of("ffn"), of("vocab")),
                .size = {.batch = of("batch"), .seq = of("seq")},
                .inputs = {}};
  for (const ParameterSpec& p : model_parameters(run.spec)) {
    for (const float x : golden::weights_of(p.name, p.shape))
      run.inputs[p.name].push_back(p.shape.size() > 1 ? 7.0 * x : x);
  }
  for (const char* name : {"tokens", "labels"})
    run.inputs[name] = golden()[name].get<std::vector<double>>();
  const auto n = static_cast<int64_t>(run.inputs["tokens"].size());
  for (int64_t i = 0; i < n; ++i)
    run.inputs["positions"].push_back(static_cast<double>(i % run.size.seq));
  run.inputs["inv_n"] = {1.0 / static_cast<double>(n)};
  return run;
}

TEST(UnitScaling, a_model_and_its_gradients_are_the_packages) {
  const GoldenRun run = golden_run();
  Graph graph = simplify(unit_scale(simplify(autodiff(forward_of(run.spec, run.size)))));
  for (const Node& node : graph.nodes) {
    if (node.op == OpCode::cross_entropy)
      graph.outputs.push_back({.name = "logits", .value = node.in(CrossEntropy::logits)});
  }
  const Tensors results = reference::interpret(graph, run.inputs);
  EXPECT_NEAR(results.at("loss")[0], golden()["loss"].get<double>(), 2e-6);
  const auto logits = golden()["logits"].get<std::vector<double>>();
  ASSERT_EQ(results.at("logits").size(), logits.size());
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(results.at("logits")[i], logits[i], 2e-6);
  size_t n_gradients = 0;
  for (const auto& [name, expected] : golden()["gradients"].items()) {
    const std::vector<double>& gradient = results.at(gradient_name(name));
    double sum = 0;
    for (const double x : gradient) sum += x * x;
    const double rms = expected["rms"].get<double>();
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(gradient.size())), rms, 2e-6 * rms) << name;
    const auto first = expected["first"].get<std::vector<double>>();
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_NEAR(gradient[i], first[i], 5e-6 * rms) << name << " " << i;
    ++n_gradients;
  }
  EXPECT_EQ(n_gradients, model_parameters(run.spec).size());
}

TEST(UnitScaling, learning_rates_are_the_packages) {
  const GoldenRun run = golden_run();
  const auto rates = unit_learning_rates(forward_of(run.spec, run.size));
  EXPECT_EQ(rates.size(), golden()["learning_rates"].size());
  for (const auto& [name, expected] : golden()["learning_rates"].items())
    EXPECT_NEAR(rates.at(name), expected.get<double>(), 1e-12) << name;
}

// A decoder reads one token at a time: its factors are those of the sequence that was trained.
TEST(UnitScaling, attention_of_other_rows_keeps_the_trained_factor) {
  const GoldenRun run = golden_run();
  const auto factor = [&](const BatchSize& size, int64_t seq) {
    const Graph graph = unit_scale(simplify(forward_of(run.spec, size)), seq);
    for (const Node& node : graph.nodes) {
      const Node* attention = graph.producer(node.in(Rescale::x), OpCode::attention);
      if (node.op != OpCode::rescale || attention == nullptr) continue;
      const Node* fill = graph.producer(node.in(Rescale::factor), OpCode::fill);
      return std::get<FillAttrs>(fill->attrs).value;
    }
    return 0.0;
  };
  const double own = factor({.batch = 1, .seq = 32}, 0);
  EXPECT_EQ(own, unit_scaling::attention_factor(AttentionMask::causal, 32, 8));
  EXPECT_EQ(factor({.batch = 1, .seq = 1}, 32), own);
  EXPECT_NE(factor({.batch = 1, .seq = 8}, 0), own);
}

// RMS of every product's operands and results, of attention and of gradients of parameters, at the
// start of a model of eight layers with N(0, 1) weights and uniform tokens.
TEST(UnitScaling, values_and_gradients_are_near_one_at_the_start) {
  const ModelSpec spec = llama(64, 8, 4, 176, 256);
  const BatchSize size{.batch = 2, .seq = 32};
  Graph graph = simplify(unit_scale(simplify(autodiff(forward_of(spec, size)))));
  Tensors inputs;
  for (ParameterSpec p : model_parameters(spec)) {
    if (p.init == Init::normal) p.std = 1;
    const std::vector<float> values = initial_values(p, 1);
    inputs[p.name].assign(values.begin(), values.end());
  }
  const RandomStream random{.name = name_hash("uniform")};
  const int64_t n = size.batch * size.seq;
  for (int64_t i = 0; i < n; ++i) {
    inputs["tokens"].push_back(random.bits(static_cast<uint64_t>(2 * i)) % 256);
    inputs["labels"].push_back(random.bits(static_cast<uint64_t>(2 * i + 1)) % 256);
    inputs["positions"].push_back(static_cast<double>(i % size.seq));
  }
  inputs["inv_n"] = {1.0 / static_cast<double>(n)};
  std::erase_if(graph.outputs, [](const GraphOutput& o) { return !is_gradient_name(o.name); });
  for (const Node& node : graph.nodes) {
    if (node.op != OpCode::gemm) continue;
    const std::string name = fmt::format("{} {} {}", layer_text(node.tag), node.tag.origin,
                                         enum_name(linear_role(node)));
    graph.outputs.push_back({.name = name + " a", .value = node.in(Gemm::a)});
    graph.outputs.push_back({.name = name + " y", .value = node.out(Gemm::y)});
  }
  size_t n_values = 0;
  for (const auto& [name, values] : reference::interpret(graph, inputs)) {
    double sum = 0;
    for (const double x : values) sum += x * x;
    const double rms = std::sqrt(sum / static_cast<double>(values.size()));
    // The head divides by its width, not by the root, so that the first loss is log(vocab).
    const bool is_logits = name.ends_with("lm_head forward y");
    // A softmax that is nearly flat hardly depends on queries and keys.
    const bool is_flat =
        (name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos) &&
        name.find("forward") == std::string::npos;
    const double low = is_logits ? 0.1 : is_flat ? 1.0 / 16 : 0.5;
    EXPECT_GT(rms, low) << name;
    EXPECT_LT(rms, is_logits ? 0.15 : 4) << name;
    ++n_values;
  }
  // Two of each of three products of 57 linears, and 75 gradients.
  EXPECT_EQ(n_values, 2u * 3 * 57 + 75);
}

TEST(UnitScaling, refuses_what_has_no_factors_by_name) {
  const auto message = [](const ModelSpec& spec) {
    try {
      unit_scale(forward_of(spec, {.batch = 1, .seq = 8}));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  ModelSpec tied = llama(32, 2, 2, 64, 48);
  tied.tied = true;
  EXPECT_NE(message(tied).find("gemm of the embedding's table"), std::string::npos);
  EXPECT_NE(message(tiny::spec(ModelKind::gpt2)).find("[unit_scaling] expected a decoder"),
            std::string::npos);
  EXPECT_NE(message(tiny::spec(ModelKind::olmo2)).find("beside a norm at a layer's begin"),
            std::string::npos);
  EXPECT_EQ(message(llama(32, 2, 2, 64, 48)), "");
}

// The losses of a tiny model whose learning rate nobody searched, in what the run computes in.
std::vector<float> losses_in(Dtype compute, Master master) {
  const ModelSpec spec = tiny::spec();
  ProgramOptions options = tiny::options("unit_scaling", spec);
  options.recipe_options.compute = compute;
  options.optim.master = master;
  options.optim.lr_factors = unit_learning_rates(forward_of(spec, options.train));
  TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
  write_weights(engine.arenas(), engine.layout(), model_parameters(spec), [](ParameterSpec p) {
    if (p.init == Init::normal) p.std = 1;
    return initial_values(p, 1);
  });
  std::vector<float> losses;
  for (uint32_t step = 0; step < 30; ++step) {
    const Batch batch = tiny::batch(options.train, step, spec.vocab);
    StepScalars scalars = tiny::scalars(step, 1);
    scalars.clip = 0;
    losses.push_back(engine.step({&batch, 1}, scalars).loss);
  }
  return losses;
}

TEST(UnitScaling, trains_at_the_learning_rate_one_in_both_halves) {
  for (const auto& [compute, master] :
       {std::pair(Dtype::bf16, Master::bf16_remainder), std::pair(Dtype::fp16, Master::fp32)}) {
    const std::vector<float> losses = losses_in(compute, master);
    EXPECT_NEAR(losses.front(), std::log(48.0f), 0.2f) << dtype_name(compute);
    EXPECT_LT(losses.back(), 0.5f * losses.front()) << dtype_name(compute);
  }
}

// Weight decay is of the step's learning rate alone, whatever factor a parameter has.
TEST(UnitScaling, decay_has_no_factor_of_the_parameters_rate) {
  const ModelSpec spec = tiny::spec();
  ProgramOptions options = tiny::options("unit_scaling", spec);
  options.optim.weight_decay = 0.25;
  options.optim.lr_factors = unit_learning_rates(forward_of(spec, options.train));
  Program program(options, *tiny::backend().catalogue);
  int n_decayed = 0;
  for (const Node& node : program.plan(function::step).graph.nodes) {
    const auto* attrs = std::get_if<AdamwAttrs>(&node.attrs);
    if (attrs == nullptr) continue;
    const double factor = options.optim.lr_factor(node.tag.origin);
    EXPECT_DOUBLE_EQ(attrs->weight_decay * factor, 0.25) << node.tag.origin;
    n_decayed += factor < 1 ? 1 : 0;
  }
  EXPECT_GT(n_decayed, 14);
}

}  // namespace
}  // namespace octet::scalify_unit_scaling_test
