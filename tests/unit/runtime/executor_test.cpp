#include "runtime/executor.h"

#include <gtest/gtest.h>

#include "ir/parse.h"
#include "unit/base/error_of.h"
#include "unit/train/host_device.h"

namespace octet::runtime_executor_test {
namespace {

// Kernels that write what they see: y = sum of the operands' first bytes + 1.
class AddingCatalogue : public Catalogue {
 public:
  std::optional<KernelChoice> choose(const Graph&, const Node& node) const override {
    return KernelChoice{.name = "adding", .scratch_bytes = node.op == OpCode::exp ? 300 : 0};
  }
  LaunchFn prepare(const Graph&, const Node& node, const KernelChoice&) override {
    ++n_prepared;
    return [this, wants_scratch = node.op == OpCode::exp](const LaunchArgs& args) {
      ++n_launched;
      EXPECT_EQ(args.scratch != nullptr, wants_scratch);
      auto sum = 1;
      for (const std::byte* operand : args.operands)
        sum += operand == nullptr ? 100 : std::to_integer<int>(*operand);
      for (std::byte* result : args.results) *result = static_cast<std::byte>(sum);
    };
  }
  int n_prepared = 0, n_launched = 0;
};

const char* kGraph = R"(graph "g" phase typed
%0 = input parameter "w" : e4m3:tensor[4]
%1 = input batch "x" : e4m3:1x8[4,8]
%2 = input batch "scales" : bf16[4,1]
%3, %4 = rms_norm(%1, x_scale = %2) : bf16[4,8], f32[4]
%5 = exp(%3) : bf16[4,8]
output "y" %5
output "w_again" %0
)";

struct Bench {
  AddingCatalogue catalogue;
  test::HostDevice device;
  Plan plan;
  Arenas arenas;
  BoundPlan bound;

  static Plan plan_of(const Catalogue& catalogue) {
    const Graph graph = parse_graph(kGraph, "text");
    Layout layout;
    layout.add_inputs(graph);
    return make_plan(graph, layout, catalogue);
  }
  Bench()
      : plan(plan_of(catalogue)),
        arenas(device, plan.arena_bytes),
        bound(plan, catalogue, arenas) {}
};

TEST(BoundPlan, prepares_once_and_launches_every_step) {
  Bench bench;
  EXPECT_EQ(bench.catalogue.n_prepared, 2);
  bench.bound.run();
  bench.bound.run();
  EXPECT_EQ(bench.catalogue.n_launched, 4);
}

TEST(BoundPlan, of_a_plan_for_another_target_is_refused) {
  Bench bench;
  bench.catalogue.strike("exp adding");
  const std::string error =
      test::error_of([&] { BoundPlan(bench.plan, bench.catalogue, bench.arenas); });
  EXPECT_NE(error.find("without exp adding"), std::string::npos) << error;
}

TEST(BoundPlan, operands_and_results_are_where_inputs_and_outputs_are) {
  Bench bench;
  std::vector<uint8_t> x(32, 5), scales(8, 7), y(64);
  bench.bound.write_input("x", x.data(), 32);
  bench.bound.write_input("scales", scales.data(), 8);
  bench.bound.run();
  bench.bound.read_output("y", y.data(), 64);
  EXPECT_EQ(y[0], 1 + (1 + 5 + 100 + 7));  // exp of the norm; the norm has no weight
}

TEST(BoundPlan, an_observer_stands_before_and_after_every_step) {
  Bench bench;
  std::vector<std::pair<OpCode, bool>> seen;
  bench.bound.run([&](const Plan& plan, const PlanStep& step, bool before) {
    seen.emplace_back(plan.graph.node(step.node).op, before);
  });
  EXPECT_EQ(seen, (std::vector<std::pair<OpCode, bool>>{{OpCode::rms_norm, true},
                                                        {OpCode::rms_norm, false},
                                                        {OpCode::exp, true},
                                                        {OpCode::exp, false}}));
}

TEST(BoundPlan, unknown_names_are_errors) {
  Bench bench;
  EXPECT_TRUE(bench.bound.has_input("x"));
  EXPECT_FALSE(bench.bound.has_input("y"));
  EXPECT_TRUE(bench.bound.has_output("y"));
  EXPECT_EQ(test::error_of([&] { bench.bound.input("z"); }),
            "[executor] function g has no input 'z'");
  EXPECT_EQ(test::error_of([&] { bench.bound.output("z"); }),
            "[executor] function g has no output 'z'");
}

TEST(BoundPlan, a_copy_of_another_size_is_our_fault) {
  Bench bench;
  uint8_t byte = 0;
  EXPECT_THROW(bench.bound.write_input("x", &byte, 1), Error);
  EXPECT_THROW(bench.bound.read_output("y", &byte, 1), Error);
}

TEST(Arenas, that_are_smaller_than_the_plan_are_refused) {
  Bench bench;
  const int64_t none[kArenaCount] = {0, 0, 0};
  Arenas small(bench.device, none);
  EXPECT_THROW(BoundPlan(bench.plan, bench.catalogue, small), Error);
}

}  // namespace
}  // namespace octet::runtime_executor_test
