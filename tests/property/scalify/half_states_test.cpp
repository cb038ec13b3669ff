// FP16 weights, gradients and moments with scales: the published experiments, on a tiny model.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backends/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/expand_updates.h"
#include "compile/program.h"
#include "passes/rewrite/simplify.h"
#include "property/recipes/tiny_training.h"

namespace octet::scalify_half_states_test {
namespace {

struct Experiment {
  const char* recipe;
  std::optional<Dtype> compute, gradient;
  DynamicRescale rescale = DynamicRescale::none;
  Master master = Master::fp32;
  bool half_states = false;
};
constexpr auto kNorms = DynamicRescale::norms;
const Experiment kExperiments[] = {
    {"fp32", {}, {}},
    {"scalify_fp16", {}, Dtype::fp16},
    {"scalify_fp16", {}, Dtype::fp16, kNorms, Master::fp16_sr},
    {"scalify_fp8", Dtype::fp16, Dtype::e5m2, kNorms, Master::fp16_sr},
    {"scalify_fp8", Dtype::fp16, Dtype::e5m2, DynamicRescale::norms_and_gradients, Master::fp16_sr,
     true}};

ProgramOptions program(const Experiment& e, const ModelSpec& spec) {
  ProgramOptions options = tiny::options(e.recipe, spec);
  options.recipe_options.compute = e.compute;
  options.recipe_options.scaled_gradient = e.gradient;
  options.recipe_options.rescale = e.rescale;
  options.optim.master = e.master;
  if (e.half_states)
    options.optim.state_m = options.optim.state_v = run_state_format_from_name(kScaledHalf);
  return options;
}

double mean_of_last(const std::vector<float>& losses) {
  return std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
}

TEST(PublishedExperiments, train_as_fp32_does) {
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  constexpr int kSteps = 150;
  const double expected = mean_of_last(tiny::losses(program(kExperiments[0], spec), kSteps, spec));
  for (const Experiment& e : kExperiments) {
    const auto losses = tiny::losses(program(e, spec), kSteps, spec);
    EXPECT_GT(losses[0] - losses.back(), 0.5) << e.recipe;
    EXPECT_NEAR(mean_of_last(losses), expected, 0.1) << &e - kExperiments;
  }
}

// One token everywhere: gradients of biases and of its row are as many times as large as predicted
// as there are tokens. In FP16 they would be infinities.
TEST(PublishedExperiments, gradients_that_all_tokens_agree_on_do_not_overflow) {
  const ModelSpec spec = resolved({.kind = ModelKind::gpt2,
                                   .hidden = 16,
                                   .layers = 1,
                                   .heads = 1,
                                   .ffn = 32,
                                   .vocab = 256,
                                   .max_positions = 256,
                                   .tied = true});
  for (const Experiment& e : kExperiments) {
    ProgramOptions options = program(e, spec);
    options.train = {.batch = 64, .seq = 256};
    TrainEngine engine(options, *tiny::backend().device, *tiny::backend().catalogue);
    tiny::start(engine, spec);
    const std::vector<int32_t> same(64 * 256, 7);
    const Batch batch = text_batch(64, 256, same, same);
    const StepOutcome outcome = engine.step({&batch, 1}, tiny::scalars(0));
    EXPECT_FALSE(outcome.nonfinite) << e.recipe << " " << &e - kExperiments;
    EXPECT_NEAR(outcome.grad_norm, 4.6, 0.4) << &e - kExperiments;
  }
}

TEST(PublishedExperiments, store_what_they_say) {
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  TrainEngine engine(program(kExperiments[4], spec), *tiny::backend().device,
                     *tiny::backend().catalogue);
  int n_moments = 0, n_scales = 0;
  for (const auto& [name, slot] : engine.layout().slots) {
    const StateUse use = slot.key.use;
    if (use == StateUse::moment1 || use == StateUse::moment2 || slot.kind == InputKind::parameter) {
      EXPECT_EQ(slot.type.dtype, Dtype::fp16) << name;
      ++n_moments;
    }
    EXPECT_NE(use, StateUse::master) << name;
    n_scales += use == StateUse::fixed_scale ? 1 : 0;
  }
  EXPECT_GT(n_moments, 60);
  EXPECT_EQ(n_scales * 3, n_moments * 2);
}

// Between the backward pass and their updates: all are there when their norm is taken.
TEST(PublishedExperiments, keep_gradients_in_few_bytes) {
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  const int64_t n = parameter_count(spec);
  constexpr int64_t kBytes[] = {4, 2, 2, 1, 1};
  for (const Experiment& e : kExperiments) {
    Program of(program(e, spec), *tiny::backend().catalogue);
    int64_t bytes = 0;
    for (const Buffer& buffer : of.plan(function::step).buffers)
      bytes += buffer.role == MemoryRole::gradients ? buffer.bytes : 0;
    // Beside data a scale f32[], at most, of each.
    const int64_t data = n * kBytes[&e - kExperiments];
    EXPECT_GE(bytes, data) << &e - kExperiments;
    EXPECT_LE(bytes, data + 4 * std::ssize(model_parameters(spec))) << &e - kExperiments;
  }
}

// Four micro-batches: their sum is FP16 with a measured scale.
TEST(PublishedExperiments, accumulate_as_fp32_does) {
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  constexpr int kSteps = 60;
  double expected = 0;
  for (const size_t i : {0, 2, 4}) {
    ProgramOptions options = program(kExperiments[i], spec);
    options.train.batch = 1, options.accumulate = 4;
    const double loss = mean_of_last(tiny::losses(options, kSteps, spec));
    if (i == 0) expected = loss;
    EXPECT_NEAR(loss, expected, 0.1) << i;
    const Program made(options, *tiny::backend().catalogue);
    for (const auto& [name, slot] : made.layout().slots) {
      if (slot.key.use != StateUse::accumulator) continue;
      EXPECT_EQ(slot.type.dtype, i == 0 ? Dtype::f32 : Dtype::fp16) << name;
    }
  }
}

// Sums of ranks wait in FP16 in every stage, but those of micro-batches and those that are strict.
TEST(PublishedExperiments, keep_sums_of_ranks_in_fp16) {
  const ModelSpec spec = tiny::spec(ModelKind::gpt2);
  const auto expect_gradients = [&](const ProgramOptions& options, Dtype dtype) {
    Program of(options, *tiny::backend().catalogue);
    const bool is_single = options.accumulate == 1;
    const Graph& graph = of.plan(is_single ? function::step : function::update).graph;
    int n_updates = 0;
    for (const Node& node : graph.nodes) {
      if (node.op != OpCode::adamw_step) continue;
      EXPECT_EQ(graph.type(node.in(AdamwStep::g)).dtype, dtype) << options.recipe;
      ++n_updates;
    }
    EXPECT_GT(n_updates, 20);
  };
  for (const Experiment& e : kExperiments) {
    ProgramOptions options = program(e, spec);
    options.parallel.ranks = 2;
    for (const ShardStage stage :
         {ShardStage::none, ShardStage::optimizer, ShardStage::gradients, ShardStage::parameters}) {
      options.parallel.shard = stage;
      expect_gradients(options, e.gradient ? Dtype::fp16 : Dtype::f32);
    }
    options.parallel.strict = true;
    expect_gradients(options, Dtype::f32);
    options.parallel.strict = false, options.accumulate = 2;
    expect_gradients(options, Dtype::f32);
  }
}

struct KeptCase {
  Dtype format = Dtype::fp16;
  UpdateKind rule = UpdateKind::adamw;
  Clipping clipping = Clipping::global_norm;
};

// An update by a gradient whose value a node of this role makes of data and scale.
reference::Tensors updated(const KeptCase& c, Role role, double clip) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder b(graph);
  const Shape shape = {12, 16};
  const ValueId w = b.input(InputKind::parameter, "w", {Dtype::f32, shape});
  const ValueId x = b.input(InputKind::batch, "x", {Dtype::f32, shape});
  const ValueId scale = b.input(InputKind::batch, "scale", {Dtype::f32, {}});
  b.tag = Tag{.role = Role::backward, .origin = "w"};
  const bool is_half = c.format == Dtype::fp16;
  const ValueId data = is_half ? b.cast(x, Dtype::fp16)
                               : b.emit_typed(OpCode::quantize, QuantizeAttrs{}, {x, b.fill({}, 1)},
                                              {c.format})[Quantize::q];
  b.tag.role = role;
  const ValueId value =
      is_half ? b.emit_typed(OpCode::rescale, NoAttrs{}, {data, scale}, {Dtype::f32})[0]
              : b.dequantize(data, scale, Dtype::f32);
  const OptimPolicy policy{.kind = c.rule, .clipping = c.clipping};
  build_update(b, {{.parameter = "w", .weight = w, .gradient = value, .rule = c.rule}}, policy);
  graph = expand_updates(remove_dead(graph), policy);
  reference::Tensors in;
  const RandomStream random{.name = name_hash("kept gradients")};
  for (const GraphInput& input : graph.inputs) {
    auto& values = in[input.name];
    values.assign(static_cast<size_t>(graph.type(input.value).n_elems()), 0.5);
    if (input.kind == InputKind::state) values.assign(values.size(), 0);
    if (input.name == "clip") values = {clip};
    if (input.name == "scale") values = {0x1p-7};
    for (size_t i = 0; values.size() > 1 && input.kind != InputKind::state && i < values.size();
         ++i)
      values[i] = static_cast<double>(random.normal(i));
  }
  return reference::interpret(graph, in);
}

// No bit depends on where the value is made, but that norms are summed up in another order.
TEST(KeptGradients, update_as_their_values_do) {
  constexpr auto kOne = Clipping::none;
  const KeptCase kCases[] = {{},
                             {Dtype::e5m2},
                             {Dtype::fp16, UpdateKind::adamw, kOne},
                             {Dtype::e5m2, UpdateKind::adamw, kOne},
                             {Dtype::fp16, UpdateKind::sgd},
                             {Dtype::e5m2, UpdateKind::sgd},
                             {Dtype::fp16, UpdateKind::muon},
                             {Dtype::e5m2, UpdateKind::lamb}};
  for (const KeptCase& c : kCases) {
    for (const double clip : {0.0, 0.01}) {
      if (clip > 0 && c.clipping == kOne) continue;
      const auto values = updated(c, Role::backward, clip), kept = updated(c, Role::update, clip);
      ASSERT_EQ(values.size(), kept.size());
      EXPECT_NE(kept.at("next:w")[0], 0);
      for (const auto& [name, expected] : values) {
        const auto& got = kept.at(name);
        const double close = clip > 0 || name == "grad_norm" ? 1e-5 : 0;
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], close * std::fabs(expected[i]))
              << name << " " << &c - kCases << " " << clip;
      }
    }
  }
}

// v of constant squares with b2 = 0.999: what is lost of each small step would add up.
TEST(ScaledMoments, v_is_not_biased_after_3000_steps) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder b(graph);
  constexpr int64_t kN = 4096;
  const ValueId w = b.input(InputKind::parameter, "w", {Dtype::f32, {kN}});
  const ValueId g = b.input(InputKind::batch, "g", {Dtype::f32, {kN}});
  OptimPolicy policy{.beta2 = 0.999};
  policy.state_v = run_state_format_from_name(kScaledHalf);
  policy.gradient_rms = {{"w", -12}};
  build_update(b, {{.parameter = "w", .weight = w, .gradient = g}}, policy);
  graph = expand_updates(graph, policy);
  using reference::Tensors;
  Tensors in;
  for (const GraphInput& input : graph.inputs)
    in[input.name].assign(static_cast<size_t>(graph.type(input.value).n_elems()), 0);
  for (const char* name : {"adam_c1", "adam_c2"}) in[name] = {1};
  const RandomStream random{.name = name_hash("gradients")};
  std::vector<double> exact(kN, 0);
  for (uint32_t step = 1; step <= 3000; ++step) {
    in["attempt"] = {static_cast<double>(step)};
    for (size_t i = 0; i < kN; ++i) {
      const float x = std::ldexp(random.normal(step * kN + i), -12);
      in["g"][i] = static_cast<double>(x);
      exact[i] = 0.999 * exact[i] + 0.001 * static_cast<double>(x) * static_cast<double>(x);
    }
    const Tensors out = reference::interpret(graph, in);
    for (const GraphOutput& output : graph.outputs) {
      if (output.updates != kNoValue)
        in[graph.input_of(output.updates)->name] = out.at(output.name);
    }
  }
  const double scale = in.at(state_name(StateUse::fixed_scale, "w.v"))[0];
  EXPECT_EQ(scale, 0x1p-24);
  const auto& v = in.at(state_name(StateUse::moment2, "w"));
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) * scale;
  const double expected = std::accumulate(exact.begin(), exact.end(), 0.0);
  std::printf("[ bias of v ] scaled FP16, b2 0.999: %+.4f %%\n", 100 * (mean / expected - 1));
  EXPECT_NEAR(mean / expected, 1, 1e-3);
}

}  // namespace
}  // namespace octet::scalify_half_states_test
