// Scales that are said or measured anywhere in a graph change no value, and keep data near 1.
#include <gtest/gtest.h>

#include <bit>

#include "ir/print.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/fold.h"
#include "passes/scalify/scalify.h"
#include "property/scalify/random_scales.h"

namespace octet::scalify_random_scales_test {
namespace {

using random_scales::Generator;
using reference::Tensors;

Tensors run_typed(const Graph& typed, const Tensors& inputs) {
  verify(typed);
  return reference::interpret(typed, inputs);
}
Tensors run_in_f32(const Graph& logical, const Tensors& inputs) {
  return run_typed(assign_types(logical, Dtype::f32, Dtype::f32), inputs);
}

bool is_state_or_data(const std::string& name) {
  return name.starts_with("data") || name.starts_with("next:");
}

// True if f32 holds the outputs with room for other scales.
bool is_tame(const Tensors& outputs) {
  for (const auto& [name, values] : outputs) {
    for (const double x : values)
      if (!std::isfinite(x) || std::fabs(x) > 0x1p30) return false;
  }
  return true;
}

// Bits differ where they are not both zero; returns the first place.
std::string first_difference(const Tensors& actual, const Tensors& expected) {
  for (const auto& [name, values] : expected) {
    if (is_state_or_data(name)) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = actual.at(name)[i];
      if (std::bit_cast<uint64_t>(x + 0.0) != std::bit_cast<uint64_t>(values[i] + 0.0))
        return name + "[" + std::to_string(i) + "]: " + std::to_string(x) + ", plain " +
               std::to_string(values[i]);
    }
  }
  return "";
}

TEST(RandomScales, have_the_plain_graphs_bits_in_f32) {
  int n_tame = 0;
  constexpr int kGraphs = 200;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Generator g(seed, {});
    const Graph graph = simplify(autodiff(g.graph));
    const Tensors plain = run_in_f32(graph, g.inputs);
    if (!is_tame(plain)) continue;
    ++n_tame;
    for (const auto rounding :
         {ScaleRounding::predicted, ScaleRounding::paper, ScaleRounding::up}) {
      const Graph scaled = fold_rescales(scalify(graph, {.rounding = rounding}).graph);
      EXPECT_EQ(first_difference(run_in_f32(simplify(scaled), g.inputs), plain), "")
          << "seed " << seed << "\n"
          << print(graph);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(n_tame, kGraphs * 3 / 4);
}

// In FP16, of values that plain FP16 does not hold.
Tensors run_in_fp16(const Graph& logical, const Tensors& inputs) {
  const Recipe& recipe = find_recipe("scalify_fp16");
  return run_typed(recipe.apply(recipe, logical, {}), inputs);
}

double distance(const std::vector<double>& actual, const std::vector<double>& expected) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return size == 0 ? std::sqrt(sum) : std::sqrt(sum / size);
}

// Not near: a row that is far smaller than its tensor, zeros under a large measured scale.
TEST(RandomScales, keep_fp16_near_f32_where_inputs_sizes_are_said_or_measured) {
  int n_tame = 0, n_near = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Generator g(seed, {.n_ops = 6, .max_log2 = 9, .tells_sizes = true});
    const Graph graph = simplify(autodiff(g.graph));
    const Tensors plain = run_in_f32(graph, g.inputs);
    if (!is_tame(plain)) continue;
    const Tensors scaled = run_in_fp16(graph, g.inputs);
    bool is_near = true;
    for (const auto& [name, values] : plain)
      is_near = is_near && (is_state_or_data(name) || distance(scaled.at(name), values) < 0.01);
    ++n_tame;
    n_near += is_near ? 1 : 0;
  }
  EXPECT_GT(n_tame, 140);
  EXPECT_GE(n_near, n_tame * 95 / 100);
}

// One op on x of RMS 2^a and y of magnitude 2^b, whose scales are said or measured, gives its data
// the scale of the table in docs/scalify.md.
struct RuleCase {
  const char* name;
  ValueId (*emit)(Builder& b, ValueId x, ValueId y);
  double (*log2)(double a, double b);  // of the scale, before it is rounded
  double low, high;                    // of log2 of the data's RMS
};

constexpr int64_t kRuleRows = 64, kRuleWidth = 48;
const Shape kRuleShape = {kRuleRows, kRuleWidth};
const double kRootOfWidth = half_log2(kRuleWidth);

// Windows of 2 x 2 pixels of a square, without a border.
UnfoldAttrs windows_of(int64_t side) {
  return {.picture = {side, side},
          .window = {2, 2},
          .stride = {1, 1},
          .dilation = {1, 1},
          .low = {0, 0},
          .high = {0, 0}};
}
const NormAttrs kSmallEps = {.eps = 1e-12};

double larger(double a, double b) {
  return std::max(a, b);
}
double of_first(double a, double) {
  return a;
}
double of_product(double a, double b) {
  return a + b + kRootOfWidth;
}
ValueId first_row(Builder& b, ValueId y) {
  const ValueId row = b.emit1(OpCode::slice, SliceAttrs{{0, 0}, {1, kRuleWidth}, {1, 1}}, {y});
  return b.reshape(row, {kRuleWidth});
}

const RuleCase kRuleCases[] = {
    {"add", [](Builder& b, ValueId x, ValueId y) { return b.add(x, y); }, root_sum, -0.6, 0.6},
    {"sub", [](Builder& b, ValueId x, ValueId y) { return b.sub(x, y); }, root_sum, -0.6, 0.6},
    {"mul", [](Builder& b, ValueId x, ValueId y) { return b.mul(x, y); },
     [](double a, double b) { return a + b; }, -0.1, 0.1},
    {"mul by itself", [](Builder& b, ValueId x, ValueId) { return b.mul(x, x); },
     [](double a, double) { return 2 * a; }, 0.6, 1},
    {"div", [](Builder& b, ValueId x, ValueId y) { return b.div(x, y); },
     [](double a, double b) { return a - b; }, -0.1, 0.1},
    {"square", [](Builder& b, ValueId x, ValueId) { return b.unary(OpCode::square, x); },
     [](double a, double) { return 2 * a; }, 0.6, 1},
    {"sqrt",
     [](Builder& b, ValueId x, ValueId) {
       return b.unary(OpCode::sqrt, b.unary(OpCode::square, x));
     },
     of_first, -0.1, 0.1},
    {"rsqrt",
     [](Builder& b, ValueId, ValueId y) {
       return b.unary(OpCode::rsqrt, b.unary(OpCode::square, y));
     },
     [](double, double b) { return -b; }, -0.1, 0.1},
    {"maximum",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::maximum, NoAttrs{}, {x, y});
     },
     larger, -1, 0.5},
    {"concatenate",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::concatenate, AxisAttrs{1}, {x, y});
     },
     larger, -1, 0.1},
    {"select",
     [](Builder& b, ValueId x, ValueId y) {
       const ValueId wide = b.emit1(OpCode::less, NoAttrs{}, {x, y});
       return b.select(wide, y, x);
     },
     larger, -1, 0.5},
    {"reduce_sum", [](Builder& b, ValueId x, ValueId) { return b.reduce_sum(x, {1}); },
     [](double a, double) { return a + kRootOfWidth; }, -0.7, 0.7},
    {"gemm", [](Builder& b, ValueId x, ValueId y) { return b.gemm(x, y, {.trans_b = true}); },
     of_product, -0.4, 0.1},
    {"dot",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::dot, DotAttrs{{}, {}, {1}, {1}}, {x, y});
     },
     of_product, -0.4, 0.1},
    {"gemm with scale_a",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::gemm, GemmAttrs{.trans_b = true},
                      {x, y, kNoValue, b.fill({}, 0x1p-6)});
     },
     [](double a, double b) { return of_product(a, b) - 6; }, -0.4, 0.1},
    {"bias_add",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::bias_add, NoAttrs{}, {y, first_row(b, x)});
     },
     [](double a, double b) { return std::max(b, a - 10); }, -0.1, 10.5},
    {"rms_norm",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit(OpCode::rms_norm, kSmallEps, {x, first_row(b, y)})[0];
     },
     [](double, double b) { return b; }, -0.1, 0.1},
    {"integer_pow",
     [](Builder& b, ValueId x, ValueId) {
       return b.emit1(OpCode::integer_pow, PowerAttrs{.n = 1}, {x});
     },
     of_first, -0.1, 0.1},
    {"reverse",
     [](Builder& b, ValueId x, ValueId) {
       return b.emit1(OpCode::reverse, AxesAttrs{{0, 1}}, {x});
     },
     of_first, -0.1, 0.1},
    {"reduce_min",
     [](Builder& b, ValueId x, ValueId) {
       return b.emit1(OpCode::reduce_min, AxesAttrs{{1}}, {x});
     },
     of_first, 1, 1.4},
    {"reduce_prod of two",
     [](Builder& b, ValueId, ValueId y) {
       const ValueId pairs = b.reshape(y, {kRuleRows * kRuleWidth / 2, 2});
       return b.emit1(OpCode::reduce_prod, AxesAttrs{{1}}, {pairs});
     },
     [](double, double b) { return 2 * b; }, -0.1, 0.1},
    {"reduce_window, sum",
     [](Builder& b, ValueId x, ValueId) {
       const WindowAttrs window{.window = {4, 4}, .stride = {4, 4}, .low = {0, 0}, .high = {0, 0}};
       return b.emit1(OpCode::reduce_window, window, {x});
     },
     [](double a, double) { return a + 2; }, -0.3, 0.3},
    {"reduce_window, max",
     [](Builder& b, ValueId x, ValueId) {
       const WindowAttrs window{.reduction = WindowReduction::max,
                                .window = {4, 4},
                                .stride = {4, 4},
                                .low = {0, 0},
                                .high = {0, 0}};
       return b.emit1(OpCode::reduce_window, window, {x});
     },
     of_first, 0.6, 1.2},
    {"unfold",
     [](Builder& b, ValueId x, ValueId) {
       const ValueId pictures = b.reshape(x, {kRuleRows / 16, 4, 4, kRuleWidth});
       return b.emit1(OpCode::unfold, windows_of(4), {pictures});
     },
     of_first, -0.1, 0.1},
    {"fold",
     [](Builder& b, ValueId x, ValueId) { return b.emit1(OpCode::fold, windows_of(5), {x}); },
     [](double a, double) { return a + 0.5 * std::log2(64.0 / 25); }, -0.4, -0.2},
    {"depthwise",
     [](Builder& b, ValueId x, ValueId y) {
       const ValueId weight = b.slice(b.reshape(y, {kRuleWidth, kRuleRows}), 1, 0, 4);
       return b.emit1(OpCode::depthwise, ConvolutionAttrs{windows_of(4), GemmRole::forward},
                      {x, weight});
     },
     [](double a, double b) { return a + b + 1; }, -0.2, 0.2},
    {"depthwise, gradient of x",
     [](Builder& b, ValueId x, ValueId y) {
       const ValueId weight = b.slice(b.reshape(y, {kRuleWidth, kRuleRows}), 1, 0, 4);
       return b.emit1(OpCode::depthwise, ConvolutionAttrs{windows_of(5), GemmRole::dgrad},
                      {x, weight});
     },
     [](double a, double b) { return a + b + 0.5 * std::log2(64.0 / 25); }, -0.4, 0.1},
    {"depthwise, gradient of the weight",
     [](Builder& b, ValueId x, ValueId y) {
       return b.emit1(OpCode::depthwise, ConvolutionAttrs{windows_of(4), GemmRole::wgrad},
                      {b.slice(x, 0, 0, kRuleRows / 16 * 9), y});
     },
     [](double a, double b) { return a + b + std::log2(6.0); }, -0.6, -0.2},
    {"batched_gemm",
     [](Builder& b, ValueId x, ValueId y) {
       const Shape batch = {4, kRuleRows / 4, kRuleWidth};
       const ValueId left = b.reshape(x, batch), right = b.reshape(y, batch);
       return b.emit1(OpCode::batched_gemm, BatchedGemmAttrs{.trans_b = true}, {left, right});
     },
     of_product, -0.6, 0.6},
    {"set_scale at run time",
     [](Builder& b, ValueId x, ValueId) {
       const ValueId most = b.reduce_max(b.unary(OpCode::abs, x), {0, 1});
       const ValueId given = b.add(b.sub(most, most), b.fill({}, 0.25));
       const ValueId product = b.mul(x, x);
       return b.emit1(OpCode::set_scale, ScaleAttrs{.log2 = 4}, {b.sub(product, product), given});
     },
     [](double, double) { return 2.0; }, -INFINITY, INFINITY},
    {"stop_scaling",
     [](Builder& b, ValueId x, ValueId y) {
       return b.unary(OpCode::stop_scaling, b.div(b.div(x, x), b.div(y, y)));
     },
     [](double, double) { return 0.0; }, -0.1, 0.1},
    {"gated_act",
     [](Builder& b, ValueId x, ValueId y) {
       const ValueId gate = b.emit(OpCode::rms_norm, kSmallEps, {x})[0];
       return b.emit1(OpCode::gated_act, GatedActAttrs{}, {gate, y});
     },
     [](double, double b) { return b; }, -1.5, -0.5},
};

// Normals of RMS 1, and signs.
Tensors rule_inputs(int a, int b) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  Tensors inputs;
  double sum = 0;
  for (int64_t i = 0; i < kRuleRows * kRuleWidth; ++i) {
    inputs["x"].push_back(normal(random));
    sum += inputs["x"].back() * inputs["x"].back();
    inputs["y"].push_back(random() % 2 == 0 ? std::ldexp(1, b) : -std::ldexp(1, b));
  }
  const double rms = std::sqrt(sum / static_cast<double>(inputs["x"].size()));
  for (double& x : inputs["x"]) x = std::ldexp(x / rms, a);
  return inputs;
}

enum class Sizes { said, rebalanced, measured, one_measured };

ValueId with_size(Builder& b, ValueId x, int log2, Sizes sizes, bool is_first) {
  if (sizes == Sizes::measured || (sizes == Sizes::one_measured && is_first))
    return b.emit1(OpCode::dynamic_rescale, DynamicRescaleAttrs{}, {x});
  const OpCode op = sizes == Sizes::rebalanced ? OpCode::rebalance : OpCode::set_scale;
  return b.emit1(op, ScaleAttrs{.log2 = log2}, {x});
}

void check_rule(const RuleCase& rule, int x_log2, int y_log2, Sizes sizes) {
  Graph graph;
  Builder b(graph);
  const ValueId x = b.input(InputKind::batch, "x", real_type(kRuleShape));
  const ValueId y = b.input(InputKind::batch, "y", real_type(kRuleShape));
  const ValueId z =
      rule.emit(b, with_size(b, x, x_log2, sizes, true), with_size(b, y, y_log2, sizes, false));
  const auto parts = b.emit(OpCode::data_scale, NoAttrs{}, {z});
  b.output("data", parts[DataScale::data]);
  b.output("scale", parts[DataScale::scale]);
  const Tensors out = run_in_fp16(graph, rule_inputs(x_log2, y_log2));
  const double expected = std::ceil(rule.log2(x_log2, y_log2) - 0.5);  // a tie down
  EXPECT_EQ(std::log2(out.at("scale")[0]), expected);
  double sum = 0;
  for (const double v : out.at("data")) sum += v * v;
  const double rms = 0.5 * std::log2(sum / static_cast<double>(out.at("data").size()));
  EXPECT_GE(rms, rule.low);
  EXPECT_LE(rms, rule.high);
}

TEST(ScaleRules, see_scales_that_are_said_and_those_that_are_measured) {
  constexpr std::pair<int, int> kSizes[] = {{10, 9}, {3, -2}, {-5, -5}, {-9, 10}, {11, -10}};
  for (const RuleCase& rule : kRuleCases) {
    for (const auto& [a, b] : kSizes) {
      for (const auto sizes :
           {Sizes::said, Sizes::rebalanced, Sizes::measured, Sizes::one_measured}) {
        SCOPED_TRACE(std::string(rule.name) + ", x 2^" + std::to_string(a) + ", y 2^" +
                     std::to_string(b) + ", case " + std::to_string(static_cast<int>(sizes)));
        check_rule(rule, a, b, sizes);
      }
    }
  }
}

}  // namespace
}  // namespace octet::scalify_random_scales_test
