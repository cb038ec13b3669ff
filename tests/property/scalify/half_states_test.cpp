// FP16 weights, gradients and moments with scales: the published experiments, on a tiny model.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backends/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/expand_updates.h"
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
