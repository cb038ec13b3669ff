// Update rules against PyTorch's SGD, and Muon's and LAMB's definitions in f64
// (make_rules_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "backends/cpu/backend.h"
#include "compile/expand_updates.h"
#include "ir/states.h"
#include "math/moment.h"
#include "optim/rules/rule.h"
#include "plan/plan.h"
#include "runtime/executor.h"

namespace octet::optimizer_rules_test {
namespace {

using nlohmann::json;

const json& golden() {
  static const json file =
      json::parse(std::ifstream(OCTET_SOURCE_DIR "/tests/golden/optimizer/rules.json"));
  return file;
}

// A weight in f32 with one rule, on the CPU; beside it `others` of its shape.
class Weight {
 public:
  Weight(const Shape& shape, const OptimPolicy& policy, int others = 0)
      : shape_(shape),
        policy_(policy),
        others_(others),
        backend_(cpu::make_backend(2, cpu::detect_isa(), cpu::RowSums::library, nullptr)),
        plan_(make()),
        arenas_(*backend_.device, plan_.arena_bytes),
        bound_(plan_, *backend_.catalogue, arenas_) {
    for (const GraphInput& input : plan_.graph.inputs)
      backend_.device->fill_zero(bound_.input(input.name), plan_.graph.type(input.value).n_bytes());
    write("w", [](int64_t i) { return std::cos(0.7 * static_cast<double>(i)); });
    for (int other = 1; other <= others_; ++other)
      write("w" + std::to_string(other), [](int64_t i) { return static_cast<double>(i % 7); });
  }
  void set_zero() {
    write("w", [](int64_t) { return 0.0; });
  }
  int64_t n_nodes(OpCode op) const { return std::ranges::count(plan_.graph.nodes, op, &Node::op); }

  bool step(double lr, bool is_bad = false) {
    write("g", [&](int64_t i) {
      const double g =
          std::sin(0.37 * std::pow(static_cast<double>(i) + 1, 2) * static_cast<double>(t_ + 1)) /
          2;
      return is_bad && i == 3 ? std::nan("") : g;
    });
    for (int other = 1; other <= others_; ++other) {
      write("g" + std::to_string(other), [&](int64_t i) {
        return std::sin(static_cast<double>(i * (other + 1) + t_ + 1)) * 10;
      });
    }
    return step_again(lr);
  }
  template <typename Fn>
  void set_gradient(const Fn& value) {
    write("g", value);
  }
  // With the gradient of the step before.
  bool step_again(double lr) {
    ++t_;
    write_scalar("lr", static_cast<float>(lr));
    write_scalar("clip", 0.0F);
    if (bound_.has_input("attempt")) write_scalar("attempt", static_cast<uint32_t>(t_));
    for (const std::string_view name : update_rule(policy_.kind).scalars)
      write_scalar(std::string(name), update_rule(policy_.kind).scalar(name, policy_, t_));
    bound_.run();
    uint8_t found = 0;
    bound_.read_output("found_nonfinite", &found, sizeof(found));
    return found == 0;
  }

  std::vector<float> values() const {
    std::vector<float> values(static_cast<size_t>(n_elems(shape_)));
    arenas_.device().copy_out(values.data(), bound_.input("w"), n_elems(shape_) * 4);
    return values;
  }
  std::vector<float> second_moment() const {
    const auto words = [&]<typename T>(StateUse use, T) {
      const std::string name = state_name(use, "w");
      const GraphInput* const input = plan_.graph.find_input(name);
      std::vector<T> values(static_cast<size_t>(plan_.graph.type(input->value).n_bytes()) /
                            sizeof(T));
      arenas_.device().copy_out(values.data(), bound_.input(name),
                                static_cast<int64_t>(values.size() * sizeof(T)));
      return values;
    };
    const Dtype dtype = second_moment_dtype(policy_.state_v);
    if (dtype == Dtype::f32) return words(StateUse::moment2, 0.0F);
    std::vector<float> values(static_cast<size_t>(n_elems(shape_)));
    const MomentCoding coding{.dtype = dtype,
                              .moment = Moment::second,
                              .expand = policy_.state_v.expand,
                              .math = MathMode::fast};
    decode_groups(coding, policy_.group, words(StateUse::moment2_meta, uint32_t{}),
                  words(StateUse::moment2, uint8_t{}), values);
    return values;
  }
  // Bytes of the weight and every state.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    for (const GraphInput& input : plan_.graph.inputs) {
      if (input.kind != InputKind::parameter && input.kind != InputKind::state) continue;
      const auto n = static_cast<size_t>(plan_.graph.type(input.value).n_bytes());
      all.resize(all.size() + n);
      arenas_.device().copy_out(all.data() + all.size() - n, bound_.input(input.name),
                                static_cast<int64_t>(n));
    }
    return all;
  }

 private:
  Plan make() {
    Graph graph;
    graph.phase = Phase::typed;
    Builder builder(graph);
    const TensorType type{.dtype = Dtype::f32, .shape = shape_};
    std::vector<UpdateItem> items;
    for (int i = 0; i <= others_; ++i) {
      const std::string end = i == 0 ? "" : std::to_string(i);
      const ValueId w = builder.input(InputKind::parameter, "w" + end, type);
      const ValueId g = builder.input(InputKind::batch, "g" + end, type);
      items.push_back({.parameter = "w" + end, .weight = w, .gradient = g, .rule = policy_.kind});
    }
    build_update(builder, items, policy_);
    const Graph expanded = expand_updates(graph, policy_);
    Layout layout;
    layout.add_inputs(expanded);
    return make_plan(expanded, layout, *backend_.catalogue);
  }
  template <typename Fn>
  void write(const std::string& name, const Fn& value) {
    std::vector<float> values;
    for (int64_t i = 0; i < n_elems(shape_); ++i) values.push_back(static_cast<float>(value(i)));
    bound_.write_input(name, values.data(), n_elems(shape_) * 4);
  }
  template <typename T>
  void write_scalar(const std::string& name, T value) {
    bound_.write_input(name, &value, sizeof(value));
  }

  Shape shape_;
  OptimPolicy policy_;
  int others_;
  Backend backend_;
  Plan plan_;
  mutable Arenas arenas_;
  mutable BoundPlan bound_;
  int64_t t_ = 0;
};

double relative_distance(const std::vector<float>& got, const std::vector<double>& want) {
  double distance = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    distance += std::pow(static_cast<double>(got[i]) - want[i], 2);
    size += std::pow(want[i], 2);
  }
  return std::sqrt(distance / size);
}

TEST(UpdateRules, sgd_is_pytorchs) {
  ASSERT_EQ(golden()["sgd"].size(), 10u);
  for (const json& row : golden()["sgd"]) {
    const OptimPolicy policy{.kind = UpdateKind::sgd,
                             .momentum = row["momentum"],
                             .dampening = row["dampening"],
                             .nesterov = row["nesterov"],
                             .weight_decay = row["weight_decay"],
                             .master = Master::fp32};
    Weight weight({row["n"].get<int64_t>()}, policy);
    for (int t = 0; t < row["steps"]; ++t) EXPECT_TRUE(weight.step(row["lr"]));
    json label = row;
    label.erase("weights");
    EXPECT_LT(relative_distance(weight.values(), row["weights"]), 1e-6) << label;
  }
}

TEST(UpdateRules, lamb_is_its_definition) {
  ASSERT_EQ(golden()["lamb"].size(), 2u);
  for (const json& row : golden()["lamb"]) {
    const OptimPolicy policy{.kind = UpdateKind::lamb,
                             .beta1 = row["betas"][0],
                             .beta2 = row["betas"][1],
                             .eps = row["eps"],
                             .weight_decay = row["weight_decay"],
                             .master = Master::fp32};
    Weight weight({row["n"].get<int64_t>()}, policy);
    for (int t = 0; t < row["steps"]; ++t) EXPECT_TRUE(weight.step(row["lr"]));
    EXPECT_LT(relative_distance(weight.values(), row["weights"]), 1e-6) << row["weight_decay"];
  }
}

// A weight of 0 has no length of its own.
TEST(UpdateRules, lamb_moves_a_weight_that_is_zero) {
  Weight weight({40}, {.kind = UpdateKind::lamb, .weight_decay = 0, .master = Master::fp32});
  weight.set_zero();
  EXPECT_TRUE(weight.step(0.01));
  for (const float w : weight.values()) EXPECT_NEAR(std::abs(w), 0.01, 1e-5);
}

// Products in BF16 move it by about 1 %, as they do in PyTorch.
TEST(UpdateRules, muon_is_its_definition) {
  ASSERT_EQ(golden()["muon"].size(), 20u);
  for (const json& row : golden()["muon"]) {
    const OptimPolicy policy{
        .kind = UpdateKind::muon,
        .momentum = row["momentum"],
        .nesterov = row["nesterov"],
        .muon_scale = row["match_adamw"] ? MuonScale::match_adamw : MuonScale::original,
        .weight_decay = row["weight_decay"],
        .master = Master::fp32};
    const Shape shape = {row["rows"], row["cols"]};
    Weight weight(shape, policy);
    const std::vector<float> before = weight.values();
    for (int t = 0; t < row["steps"]; ++t) EXPECT_TRUE(weight.step(row["lr"]));
    const std::vector<double> want = row["weights"];
    std::vector<float> moved = weight.values();
    std::vector<double> should_move = want;
    for (size_t i = 0; i < want.size(); ++i) {
      moved[i] -= before[i];
      should_move[i] -= static_cast<double>(before[i]);
    }
    json label = row;
    label.erase("weights");
    EXPECT_LT(relative_distance(moved, should_move), 0.015) << label;
  }
}

TEST(UpdateRules, muon_in_a_batch_is_as_alone) {
  for (const Shape& shape : {Shape{24, 40}, Shape{40, 24}}) {
    const OptimPolicy policy{.kind = UpdateKind::muon, .nesterov = true, .master = Master::fp32};
    Weight alone(shape, policy), batched(shape, policy, 4);
    EXPECT_EQ(alone.n_nodes(OpCode::batched_gemm), 15);
    EXPECT_EQ(batched.n_nodes(OpCode::batched_gemm), 15);
    for (int t = 0; t < 3; ++t) {
      EXPECT_TRUE(alone.step(0.02));
      EXPECT_TRUE(batched.step(0.02));
      EXPECT_TRUE(alone.values() == batched.values()) << to_string(shape) << " " << t;
    }
  }
}

TEST(UpdateRules, a_step_that_is_skipped_leaves_every_byte) {
  for (int i = 0; i < enum_count(UpdateKind{}); ++i) {
    const auto kind = static_cast<UpdateKind>(i);
    for (const char* state : {"f32", "bf16", "bf16_sr", "e4m3", "e4m3+x", "e4m3_sr", "fp16_sr"}) {
      OptimPolicy policy{.kind = kind, .nesterov = true, .master = Master::fp32};
      policy.state_m = policy.state_v = run_state_format_from_name(state);
      Weight weight({24, 36}, policy);
      for (int t = 0; t < 3; ++t) EXPECT_TRUE(weight.step(0.02));
      const auto before = weight.bytes();
      EXPECT_FALSE(weight.step(0.02, true)) << enum_name(kind) << " " << state;
      EXPECT_TRUE(weight.bytes() == before) << enum_name(kind) << " " << state;
      EXPECT_TRUE(weight.step(0.02));
      EXPECT_FALSE(weight.bytes() == before);
    }
  }
}

// Stored narrower, the momentum differs by its format's rounding.
TEST(UpdateRules, momentum_in_eight_bits_is_near) {
  const auto run = [](const char* state) {
    OptimPolicy policy{.kind = UpdateKind::sgd, .weight_decay = 0, .master = Master::fp32};
    policy.state_m = run_state_format_from_name(state);
    Weight weight({40, 64}, policy);
    for (int t = 0; t < 30; ++t) weight.step(0.02);
    return weight.values();
  };
  const std::vector<float> exact = run("f32");
  const std::vector<double> want(exact.begin(), exact.end());
  EXPECT_LT(relative_distance(run("bf16"), want), 2e-3);
  for (const char* state : {"e4m3", "e4m3+x", "e4m3_sr", "hif8"}) {
    const double distance = relative_distance(run(state), want);
    EXPECT_LT(distance, 0.05) << state;
    EXPECT_GT(distance, 1e-6) << state;
  }
}

// Gradients of 1 in the first elements and less behind them, rest, one step of a spike, rest.
struct Rest {
  double beta2;
  int n_steps;  // of each rest
};
constexpr Rest kRests[] = {{0.9, 40}, {0.99, 400}, {0.999, 2000}, {0.9999, 2000}, {0.99999, 2000}};

std::vector<std::vector<float>> second_moments(const Shape& shape, const OptimPolicy& policy,
                                               int n_rest) {
  Weight weight(shape, policy);
  std::vector<std::vector<float>> seen;
  for (const auto& [factor, n_steps] :
       {std::pair(1.0, 50), {0.0, n_rest}, {2.0, 1}, {0.0, n_rest}}) {
    weight.set_gradient(
        [&, factor = factor](int64_t i) { return i % 4 == 3 ? factor / 3 : factor; });
    for (int step = 0; step < n_steps; ++step) weight.step_again(1e-6);
    seen.push_back(weight.second_moment());
  }
  return seen;
}

// In eight bits: those that are rounded to nearest fall with the amax of their group, which is
// right on average; a step of rounding it up would undo the decay from beta2 = 0.9999 on.
TEST(UpdateRules, second_moments_in_eight_bits_fall_as_those_in_f32) {
  for (const UpdateKind kind : {UpdateKind::adamw, UpdateKind::lamb}) {
    for (const auto& [beta2, n_rest] : kRests) {
      OptimPolicy policy{.kind = kind};
      policy.beta2 = beta2;
      const auto exact = second_moments({1, 128}, policy, n_rest);
      for (const StateFormatRow& row : state_formats()) {
        if (!is_quantized(row.format.dtype) || row.format.stochastic) continue;
        policy.state_v = row.format;
        const auto got = second_moments({1, 128}, policy, n_rest);
        for (size_t at = 0; at < got.size(); ++at) {
          EXPECT_NEAR(got[at][0] / exact[at][0], 1, 0.01) << row.name << " " << beta2 << " " << at;
          EXPECT_EQ(got[at][1], got[at][0]);
        }
        // Smaller ones fall with it.
        EXPECT_NEAR(got[1][3] / got[1][0] * got[0][0] / got[0][3], 1, 1e-5) << row.name;
        EXPECT_NEAR(got[3][3] / got[3][0] * got[2][0] / got[2][3], 1, 1e-5) << row.name;
      }
    }
  }
}

TEST(UpdateRules, second_moments_that_are_rounded_stochastically_fall_on_average) {
  for (const UpdateKind kind : {UpdateKind::adamw, UpdateKind::lamb}) {
    OptimPolicy policy{.kind = kind};
    policy.beta2 = 0.9999;
    const auto exact = second_moments({4, 128}, policy, 400);
    for (const StateFormatRow& row : state_formats()) {
      if (!is_quantized(row.format.dtype) || !row.format.stochastic) continue;
      policy.state_v = row.format;
      const std::vector<float> got = second_moments({4, 128}, policy, 400).back();
      const auto mean = [](const std::vector<float>& v) {
        return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
      };
      EXPECT_NEAR(mean(got) / mean(exact.back()), 1, 0.01) << row.name;
    }
  }
}

}  // namespace
}  // namespace octet::optimizer_rules_test
