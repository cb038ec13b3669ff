// Loss scaling: what it must not change, how the scale follows overflows, and a run that it saves.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "backends/cpu/reference/reference.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/quantized_operands.h"
#include "plan/report.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_loss_scale_test {
namespace {

ProgramOptions options(std::string_view recipe, LossScalePolicy policy) {
  ProgramOptions result = tiny::options(recipe);
  result.loss_scale = policy;
  return result;
}

LossScalePolicy global(double first, int64_t growth_steps = 2000) {
  return {.kind = LossScaling::global, .first = first, .growth_steps = growth_steps};
}
LossScalePolicy adaptive(double first = kFirstAdaptiveLossScale) {
  return {.kind = LossScaling::adaptive, .first = first};
}

// Makes the first element of the first gradient infinite, right before the norm reads it.
StepObserver planted_overflow(TrainEngine& engine) {
  return [&engine](const Plan& plan, const PlanStep& step, bool before) {
    const Node& node = plan.graph.node(step.node);
    if (!before || node.op != OpCode::global_norm) return;
    const ValueId gradient = node.in(GlobalNorm::gradient);
    const Dtype dtype = plan.graph.type(gradient).dtype;
    ASSERT_TRUE(dtype == Dtype::fp16 || dtype == Dtype::bf16);
    const uint16_t infinity = dtype == Dtype::fp16 ? 0x7C00 : 0x7F80;
    std::memcpy(engine.arenas().address(plan, gradient), &infinity, sizeof(infinity));
  };
}

// Steps of which those overflow that `overflows` names.
std::vector<StepOutcome> outcomes(const ProgramOptions& program, uint32_t n_steps,
                                  const std::function<bool(uint32_t)>& overflows) {
  TrainEngine engine(program, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  std::vector<StepOutcome> result;
  uint32_t n_applied = 0;
  for (uint32_t step = 0; step < n_steps; ++step) {
    const Batch batch = tiny::batch(program.train, step);
    engine.observe(overflows(step) ? planted_overflow(engine) : StepObserver{});
    StepScalars scalars = tiny::scalars(n_applied);
    scalars.attempt = step + 1;
    result.push_back(engine.step({&batch, 1}, scalars));
    n_applied += result.back().nonfinite ? 0 : 1;
  }
  return result;
}

bool never(uint32_t) {
  return false;
}

// The rules once more, as they are told, without the graph.
struct Rules {
  bool is_adaptive;
  double scale, window, good_steps = 0;
  int rises = 0, falls_in_a_row = 0;

  void follow(bool overflow) {
    if (overflow) {
      scale = std::max(scale / 2, kMinLossScale);
      good_steps = 0;
      count(-1);
    } else if (++good_steps >= window) {
      scale = std::min(scale * 2, kMaxLossScale);
      good_steps = 0;
      count(1);
    }
  }
  void count(int way) {
    if (!is_adaptive) return;
    falls_in_a_row = way < 0 ? falls_in_a_row + 1 : 0;
    rises += way > 0 ? 1 : 0;
    const auto at = std::find(kLossWindows.begin(), kLossWindows.end(), window);
    if (rises == 3) {
      rises = 0;
      if (at + 1 != kLossWindows.end()) window = at[1];
    } else if (falls_in_a_row == 3) {
      falls_in_a_row = 0;
      if (at != kLossWindows.begin()) window = at[-1];
    }
  }
};

void expect_rules(const ProgramOptions& program, uint32_t n_steps,
                  const std::function<bool(uint32_t)>& overflows) {
  Rules rules{.is_adaptive = program.loss_scale.kind == LossScaling::adaptive,
              .scale = program.loss_scale.first,
              .window = program.loss_scale.first_window()};
  const auto steps = outcomes(program, n_steps, overflows);
  for (uint32_t step = 0; step < n_steps; ++step) {
    const StepOutcome& outcome = steps[step];
    ASSERT_TRUE(outcome.loss_scale.has_value());
    ASSERT_EQ(outcome.loss_scale->scale, rules.scale) << step;
    ASSERT_EQ(outcome.loss_scale->window, rules.window) << step;
    ASSERT_EQ(outcome.loss_scale->good_steps, rules.good_steps) << step;
    ASSERT_EQ(outcome.nonfinite, overflows(step)) << step;
    ASSERT_EQ(outcome.overflowed, overflows(step) && rules.scale > kMinLossScale) << step;
    rules.follow(overflows(step));
  }
}

// Without clipping, whose norm has an epsilon, a power of two leaves every bit.
TEST(LossScale, changes_no_bit_where_nothing_is_small_or_large) {
  for (const char* recipe : {"fp32", "bf16", "fp8_linear", "hif8", "coat"}) {
    ProgramOptions plain = tiny::options(recipe);
    const auto run = [&](const ProgramOptions& program) {
      TrainEngine engine(program, *tiny::backend().device, *tiny::backend().catalogue);
      tiny::start(engine);
      std::vector<StepOutcome> steps;
      for (uint32_t step = 0; step < 4; ++step) {
        const Batch batch = tiny::batch(program.train, step);
        StepScalars scalars = tiny::scalars(step);
        scalars.clip = 0;
        steps.push_back(engine.step({&batch, 1}, scalars));
      }
      return steps;
    };
    const auto a = run(plain), b = run(options(recipe, global(0x1p12, 2)));
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(a[i].loss), std::bit_cast<uint32_t>(b[i].loss))
          << recipe << " " << i;
      EXPECT_EQ(a[i].grad_norm, b[i].grad_norm) << recipe << " " << i;
    }
    EXPECT_EQ(b.back().loss_scale->scale, 0x1p13f) << recipe;  // it grew meanwhile
  }
}

TEST(LossScale, clips_the_gradients_of_the_loss_itself) {
  const auto plain = tiny::losses(tiny::options("fp32"), 8),
             scaled = tiny::losses(options("fp32", global(0x1p20)), 8);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], scaled[i], 1e-5f) << i;
}

TEST(LossScale, global_halves_on_overflow_and_doubles_after_good_steps) {
  expect_rules(options("bf16", global(0x1p10, 3)), 24,
               [](uint32_t step) { return step == 4 || step == 5 || step == 13; });
}

// The states of loss_scale.h over steps that overflow where the scale is above a limit.
struct Simulated {
  int n_overflows = 0;
  double scale = 0, window = 0;
};
Simulated simulate(const LossScalePolicy& policy, double limit, int n_steps) {
  Graph graph;
  graph.phase = Phase::typed;
  Builder b(graph);
  const ValueId overflow =
      b.emit1(OpCode::less, NoAttrs{}, {b.fill({}, limit), loss_scale(b, policy)});
  update_loss_scale(b, policy, overflow);
  b.output("overflow", overflow);
  reference::Tensors states;
  for (const GraphInput& input : graph.inputs) states[input.name] = {0};
  Simulated result;
  for (int step = 0; step < n_steps; ++step) {
    const reference::Tensors next = reference::interpret(graph, states);
    result.n_overflows += next.at("overflow")[0] != 0 ? 1 : 0;
    for (auto& [name, value] : states) value = next.at(next_name(name));
  }
  const auto state = [&](std::string_view owner) {
    return states.at(state_name(StateUse::loss_scale, owner))[0];
  };
  result.scale = state(kLossScaleValue), result.window = state(kLossScaleWindow);
  return result;
}

// Rises are counted though each is followed by a fall: with rises in a row alone the window would
// stay 1, and 5,007 steps would overflow.
TEST(LossScale, a_steady_limit_widens_the_adaptive_window) {
  const Simulated result = simulate(adaptive(), std::exp2(18.5), 10000);
  EXPECT_EQ(result.n_overflows, 39);
  EXPECT_EQ(result.window, 1000);
  EXPECT_EQ(result.scale, 0x1p18);
}

TEST(LossScale, adaptive_moves_its_window_by_rises_and_runs_of_falls) {
  const auto overflows = [](uint32_t step) {
    return (step >= 25 && step < 32) || step == 40 || step == 42 || step == 45;
  };
  expect_rules(options("bf16", adaptive(0x1p10)), 160, overflows);
}

TEST(LossScale, stays_within_its_bounds) {
  expect_rules(options("bf16", global(0x1p-22, 2)), 12, [](uint32_t step) { return step < 5; });
  expect_rules(options("bf16", global(0x1p46, 1)), 6, never);
}

TEST(LossScale, follows_accumulated_micro_batches) {
  ProgramOptions program = options("hif8", adaptive(0x1p14));
  program.recipe_options.scaling = Scaling::periodic;
  program.train.batch /= 2;
  program.accumulate = 2;
  const auto losses = tiny::losses(program, 12);
  for (const float loss : losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_LT(losses.back(), losses.front() - 0.2f);
}

// A burst of overflows drives a global scale so low that all gradients are zero in FP16, and there
// it stays for 2,000 steps; the adaptive one began higher, has shrunk its window to 1 by then, and
// rises.
TEST(LossScale, the_adaptive_one_recovers_where_the_global_one_does_not) {
  const auto burst = [](uint32_t step) { return step >= 5 && step < 45; };
  constexpr uint32_t kSteps = 110;
  const auto plain = outcomes(options("fp16", global(0x1p16)), kSteps, burst);
  const auto follows = outcomes(options("fp16", adaptive()), kSteps, burst);
  const float before = plain[44].loss;
  EXPECT_LE(plain.back().loss_scale->scale, 0x1p-23f);
  EXPECT_EQ(plain.back().grad_norm, 0.0f);
  EXPECT_GT(plain.back().loss, before - 0.3f);
  // Eightfold in three steps, and twofold every 20 from there.
  EXPECT_EQ(follows.back().loss_scale->scale, 0x1p6f * follows[45].loss_scale->scale);
  EXPECT_GT(follows.back().grad_norm, 0.0f);
  EXPECT_LT(follows.back().loss, before - 1.0f);
}

// Gradients of HiFloat8 without a scale of their own: 40,960 and above saturate, and that is seen
// before the cast.
TEST(LossScale, what_saturates_is_an_overflow) {
  ProgramOptions program = options("hif8", global(0x1p40));
  program.recipe_options.scaling = Scaling::none;
  const auto steps = outcomes(program, 60, never);
  const auto n_overflows =
      std::count_if(steps.begin(), steps.end(), [](const StepOutcome& s) { return s.overflowed; });
  EXPECT_TRUE(steps.front().overflowed);
  EXPECT_TRUE(steps.front().flagged);
  EXPECT_TRUE(std::isfinite(steps.front().grad_norm));  // the BF16 gradients say nothing
  EXPECT_GT(n_overflows, 5);
  EXPECT_LT(n_overflows, 40);
  EXPECT_FALSE(steps.back().overflowed);
  EXPECT_LT(steps.back().loss, steps.front().loss - 0.3f);
}

TEST(LossScale, hifloat8_trains_in_fp16_with_every_scaling_and_rounding) {
  for (const Scaling scaling : {Scaling::none, Scaling::periodic, Scaling::current}) {
    for (const Rounding rounding : {Rounding::near, Rounding::rne, Rounding::hr, Rounding::sr}) {
      ProgramOptions program = options("hif8", adaptive(0x1p14));
      program.optim.master = Master::fp32;
      program.recipe_options.compute = Dtype::fp16;
      program.recipe_options.scaling = scaling;
      program.recipe_options.gradient_rounding = rounding;
      const auto steps = outcomes(program, 40, never);
      EXPECT_LT(steps.back().loss, steps.front().loss - 0.3f)
          << enum_name(scaling) << " " << rounding_name(rounding);
    }
  }
}

ProgramOptions stochastic() {
  ProgramOptions program = options("hif8", {});
  program.recipe_options.gradient_rounding = Rounding::sr;
  return program;
}

TEST(StochasticGradients, each_linear_draws_words_of_its_own) {
  Program program(stochastic(), *tiny::backend().catalogue);
  const Graph& graph = program.plan(function::step).graph;
  const GraphInput* draw = graph.find_input(kRoundingDraw);
  ASSERT_NE(draw, nullptr);
  std::map<int64_t, ValueId> drawn;  // by stream
  for (const Node& node : graph.nodes) {
    const auto* q = std::get_if<QuantizeAttrs>(&node.attrs);
    if (q == nullptr || q->rounding != Rounding::sr) continue;
    EXPECT_EQ(node.in(Quantize::draw), draw->value);
    const ValueId x = node.in(Quantize::x);
    EXPECT_EQ(drawn.emplace(q->stream, x).first->second, x) << node.tag.origin;
  }
  EXPECT_EQ(std::ssize(drawn), 7 * 2);
}

TEST(StochasticGradients, a_steps_number_and_the_seed_choose_the_words) {
  const auto norm = [](uint32_t attempt, uint32_t seed) {
    ProgramOptions program = stochastic();
    program.optim.seed = seed;
    TrainEngine engine(program, *tiny::backend().device, *tiny::backend().catalogue);
    tiny::start(engine);
    const Batch batch = tiny::batch(program.train, 0);
    StepScalars scalars = tiny::scalars(0);
    scalars.attempt = attempt;
    return engine.step({&batch, 1}, scalars).grad_norm;
  };
  const float first = norm(1, 1);
  EXPECT_EQ(norm(1, 1), first);
  EXPECT_NE(norm(2, 1), first);
  EXPECT_NE(norm(1, 2), first);
  EXPECT_NEAR(norm(2, 1), first, 0.02f * first);
}

ProgramOptions periodic(LossScalePolicy policy = {}) {
  ProgramOptions program = options("hif8", policy);
  program.recipe_options.scaling = Scaling::periodic;
  return program;
}

TEST(PeriodicScale, is_1_until_the_tenth_step_and_measured_each_tenth) {
  const ProgramOptions program = periodic();
  TrainEngine engine(program, *tiny::backend().device, *tiny::backend().catalogue);
  tiny::start(engine);
  std::map<std::string, std::vector<float>> scales;
  for (uint32_t step = 0; step < 31; ++step) {
    const Batch batch = tiny::batch(program.train, step);
    engine.step({&batch, 1}, tiny::scalars(step, 0.05f));
    for (const auto& [name, slot] : engine.layout().slots) {
      if (slot.key.use != StateUse::rescale_factor) continue;
      const std::byte* at = engine.arenas().arena(slot.arena) + slot.offset;
      scales[name].push_back(*reinterpret_cast<const float*>(at));
    }
  }
  EXPECT_EQ(scales.size(), 2u * 4 * 3);  // per layer: x, w and dy of 4 groups
  bool any_changed = false, any_followed = false;
  for (const auto& [name, values] : scales) {
    for (uint32_t attempt = 1; attempt <= values.size(); ++attempt) {
      const float scale = values[attempt - 1];
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5f) << name;
      if (attempt < 10) {
        EXPECT_EQ(scale, 1.0f) << name << " " << attempt;
      }
      any_changed = any_changed || (attempt == 10 && scale != 1.0f);
      if (attempt % 10 != 0 && attempt > 1) {
        EXPECT_EQ(scale, values[attempt - 2]) << name;
      }
      any_followed = any_followed || (attempt > 10 && scale != values[9]);
    }
  }
  EXPECT_TRUE(any_changed);
  EXPECT_TRUE(any_followed);
}

TEST(PeriodicScale, nine_of_ten_steps_hold_no_amax_and_quantize_where_values_are_made) {
  for (const int n_micro : {1, 2}) {
    ProgramOptions options = periodic(adaptive());
    options.accumulate = n_micro;
    Program program(options, *tiny::backend().catalogue);
    int n_measures = 0;
    for (const FunctionKey& key : program.train_keys()) {
      const auto ops = count_ops(program.plan(key).graph);
      const bool is_plain = key.kind == StepKind::plain;
      for (const auto& [name, count] : ops) {
        if (is_plain) {
          EXPECT_EQ(name.find("amax"), std::string::npos) << key.name;
        }
        if (is_plain) {
          EXPECT_EQ(name.find("periodic"), std::string::npos) << key.name;
        }
        if (!is_plain) n_measures += name == "periodic_scale" ? 1 : 0;
      }
      if (!is_plain || key.name == function::update) continue;
      EXPECT_EQ(ops.at("rms_norm_quantize"), 4) << key.name;
      EXPECT_EQ(ops.at("gated_act_quantize"), 2) << key.name;
      EXPECT_EQ(program.plan(key).near_misses, std::vector<std::string>{}) << key.name;
    }
    EXPECT_EQ(n_measures, n_micro);
  }
}

// Makes the first element of one operand of a quantizer infinite.
StepObserver planted_operand(TrainEngine& engine, OperandKind kind) {
  const auto is_wanted = [kind](const Plan& plan, const Node& node) {
    if (kind == OperandKind::w)
      return node.op == OpCode::quantize && plan.graph.input_of(node.in(Quantize::x)) != nullptr;
    if (kind == OperandKind::x) return node.op == OpCode::gated_act_quantize;
    return node.op == OpCode::quantize && node.tag.role == Role::backward &&
           plan.graph.input_of(node.in(Quantize::x)) == nullptr;
  };
  return [&engine, is_wanted](const Plan& plan, const PlanStep& step, bool before) {
    const Node& node = plan.graph.node(step.node);
    if (!before || !is_wanted(plan, node)) return;
    const SlotId slot =
        node.op == OpCode::quantize ? SlotId{Quantize::x} : SlotId{GatedActQuantize::up};
    const ValueId value = node.in(slot);
    const Dtype dtype = plan.graph.type(value).dtype;
    ASSERT_TRUE(dtype == Dtype::bf16 || dtype == Dtype::f32);
    const uint32_t infinity = dtype == Dtype::bf16 ? 0x7F80u : 0x7F800000u;
    std::memcpy(engine.arenas().address(plan, value), &infinity, dtype == Dtype::bf16 ? 2 : 4);
  };
}

// A code of NaN tells where nothing is measured: a saturated one would look like any other number.
TEST(PeriodicScale, an_infinite_operand_skips_a_step_without_amax) {
  for (const OperandKind kind : {OperandKind::x, OperandKind::w, OperandKind::dy}) {
    const ProgramOptions program = periodic();
    TrainEngine engine(program, *tiny::backend().device, *tiny::backend().catalogue);
    tiny::start(engine);
    const auto step = [&](uint32_t i) {
      const Batch batch = tiny::batch(program.train, i);
      return engine.step({&batch, 1}, tiny::scalars(i));
    };
    EXPECT_FALSE(step(0).nonfinite);
    engine.observe(planted_operand(engine, kind));
    EXPECT_TRUE(step(1).nonfinite) << enum_name(kind);
    engine.observe({});
    if (kind != OperandKind::w) {
      EXPECT_FALSE(step(2).nonfinite) << enum_name(kind);
    }
  }
}

// Gradients above what the format holds lower the loss's scale in steps without amax too.
TEST(PeriodicScale, a_gradient_that_would_saturate_is_an_overflow) {
  const auto steps = outcomes(periodic(global(0x1p40)), 9, never);
  for (const StepOutcome& step : steps) EXPECT_TRUE(step.overflowed);
  EXPECT_EQ(steps.back().loss_scale->scale, 0x1p32f);
}

}  // namespace
}  // namespace octet::recipes_loss_scale_test
