// Plans of random graphs and of models: no live bytes are overwritten, and what runs is what the
// graph means.
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "compile/program.h"
#include "infer/model_spec.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/autodiff.h"
#include "passes/lower/fuse.h"
#include "passes/precision/recipe.h"
#include "plan/updates.h"
#include "property/planner/plan_checker.h"
#include "property/planner/poison.h"
#include "property/random_graphs/generator.h"
#include "property/random_graphs/meaning.h"

namespace octet::planner_test {
namespace {

using random_graphs::graphs;
using random_graphs::RandomGraph;

Plan plan_of(const Graph& graph, const PlanOptions& options = {}) {
  static cpu::Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  Layout layout;
  layout.add_inputs(graph);
  return make_plan(graph, layout, *backend.catalogue, options);
}

Graph typed(const RandomGraph& g) {
  if (g.graph.phase != Phase::logical) return g.graph;
  const Recipe& fp32 = find_recipe("fp32");
  const bool smooth = g.kind == random_graphs::Kind::smooth;
  return fp32.apply(fp32, smooth ? autodiff(g.graph) : g.graph, {});
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Planner, plans_of_random_graphs_are_sound) {
  int64_t reused = 0;
  for (const RandomGraph& g : graphs()) {
    const Plan plan = plan_of(typed(g));
    const auto faults = plan_checker::faults(plan);
    ASSERT_TRUE(faults.empty()) << joined(faults) << print(plan.graph);
    const Plan apart = plan_of(typed(g), {.reuse_in_place = false});
    ASSERT_TRUE(plan_checker::faults(apart).empty());
    reused += plan.buffers.size() < apart.buffers.size() ? 1 : 0;
  }
  EXPECT_GT(reused, 100);
}

TEST(Planner, a_run_with_spoilt_dead_bytes_gives_the_outputs_of_the_interpreter) {
  for (const RandomGraph& g : graphs()) {
    const Plan plan = plan_of(typed(g));
    const auto expected = reference::interpret(plan.graph, g.inputs);
    const auto actual = plan_checker::run_poisoned(plan, g.inputs);
    ASSERT_EQ(random_graphs::difference(actual, expected), 0) << print(plan.graph);
  }
}

struct UpdateCase {
  std::string name, text;
};

// Next values that cannot simply be written where the old ones lie.
const UpdateCase kUpdates[] = {
    {"swap", R"(graph "g" phase typed
%0 = input state "a" : f32[4]
%1 = input state "b" : f32[4]
output "next_a" %1 updates %0
output "next_b" %0 updates %1
)"},
    {"one_value_two_homes", R"(graph "g" phase typed
%0 = input state "a" : f32[4]
%1 = input state "b" : f32[4]
%2 = neg(%0) : f32[4]
output "next_a" %2 updates %0
output "next_b" %2 updates %1
)"},
    {"old_value_read_after_the_new_one_is_ready", R"(graph "g" phase typed
%0 = input state "a" : f32[4]
%1 = neg(%0) : f32[4]
%2 = add(%1, %0) : f32[4]
output "next_a" %1 updates %0
output "sum" %2
)"},
    {"old_value_handed_out", R"(graph "g" phase typed
%0 = input state "a" : f32[4]
%1 = neg(%0) : f32[4]
output "next_a" %1 updates %0
output "old" %0
)"},
    {"op_that_may_not_overwrite_its_operand", R"(graph "g" phase typed
%0 = input state "a" : f32[2,2]
%1 = transpose(%0) {perm = [1,0]} : f32[2,2]
output "next_a" %1 updates %0
)"},
    {"view_of_the_input_read_later", R"(graph "g" phase typed
%0 = input state "a" : f32[2,2]
%1 = reshape(%0) {shape = [4]} : f32[4]
%2 = neg(%0) : f32[2,2]
%3 = exp(%1) : f32[4]
output "next_a" %2 updates %0
output "e" %3
)"},
    {"unchanged", R"(graph "g" phase typed
%0 = input state "a" : f32[4]
%1 = neg(%0) : f32[4]
output "next_a" %0 updates %0
output "minus" %1
)"},
};

TEST(Planner, writes_next_values_home_whatever_reads_the_old_ones) {
  for (const UpdateCase& c : kUpdates) {
    const Graph graph = parse_graph(c.text, c.name);
    const Plan plan = plan_of(graph);
    EXPECT_EQ(joined(plan_checker::faults(plan)), "") << c.name;
    const reference::Tensors inputs = {{"a", {1, -2, 3, 0.5}}, {"b", {9, 8, 7, 6}}};
    reference::Tensors wanted;
    for (const GraphInput& input : graph.inputs) wanted[input.name] = inputs.at(input.name);
    EXPECT_EQ(plan_checker::run_poisoned(plan, wanted), reference::interpret(graph, wanted))
        << c.name;
  }
}

// The checker itself: a plan with one wrong offset or order has a fault.
TEST(PlanChecker, finds_a_buffer_moved_over_another) {
  int found = 0, moved = 0;
  for (size_t i = 0; i < 60; ++i) {
    Plan plan = plan_of(typed(graphs()[i]));
    // Two transient buffers that live at one step are laid over each other.
    for (size_t a = 0; a < plan.buffers.size(); ++a) {
      const Buffer& first = plan.buffers[a];
      Buffer* second = nullptr;
      for (size_t b = a + 1; b < plan.buffers.size() && second == nullptr; ++b) {
        Buffer& other = plan.buffers[b];
        const bool both = other.arena == Arena::transient && first.arena == Arena::transient &&
                          other.first_step > first.first_step && first.bytes > 0 &&
                          other.first_step < first.last_step && other.bytes > 0 &&
                          other.role != MemoryRole::workspace;
        if (both) second = &other;
      }
      if (second == nullptr || first.role == MemoryRole::workspace) continue;
      second->offset = first.offset;
      ++moved;
      found += plan_checker::faults(plan).empty() ? 0 : 1;
      break;
    }
  }
  EXPECT_GT(moved, 30);
  EXPECT_EQ(found, moved);
}

TEST(Planner, plans_of_every_recipe_and_function_are_sound) {
  static cpu::Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  for (const Recipe* recipe : all_recipes()) {
    for (const int accumulate : {1, 2}) {
      ProgramOptions options;
      options.forward =
          forward_builder({.hidden = 32, .layers = 3, .heads = 2, .ffn = 48, .vocab = 40});
      options.recipe = recipe->name;
      options.optim.master = Master::fp32;
      options.recipe_options.scaling = accumulate == 2 ? Scaling::delayed : Scaling::current;
      options.train = {.batch = 2, .seq = 9};
      options.accumulate = accumulate;
      Program program(options, *backend.catalogue);
      for (const std::string_view name : program.train_functions()) {
        EXPECT_EQ(joined(plan_checker::faults(program.plan(name))), "")
            << recipe->name << " " << name;
      }
    }
  }
}

// Shards that lie in the whole among ragged ones, and gathers beside what computes.
TEST(Planner, plans_of_ranks_are_sound) {
  static cpu::Backend backend = cpu::make_backend(1, cpu::Isa::scalar);
  int64_t in_place = 0;
  for (const Recipe* recipe : all_recipes()) {
    for (const ShardStage stage :
         {ShardStage::optimizer, ShardStage::gradients, ShardStage::parameters}) {
      ProgramOptions options;
      options.forward =
          forward_builder({.hidden = 32, .layers = 3, .heads = 2, .ffn = 48, .vocab = 40});
      options.recipe = recipe->name;
      options.optim.master = Master::fp32;
      options.train = {.batch = 2, .seq = 9};
      options.parallel = {.ranks = 2, .rank = 1, .shard = stage};
      // The choice of runs: data of a whole weight would outlive its gathered copy.
      if (stage == ShardStage::parameters) options.recipe_options.weight_copy = WeightCopy::per_use;
      Program program(options, *backend.catalogue);
      const Plan& plan = program.plan(function::step);
      EXPECT_EQ(joined(plan_checker::faults(plan)), "") << recipe->name << " " << enum_name(stage);
      in_place += std::ranges::count_if(plan.graph.outputs, [&](const GraphOutput& output) {
        return new_shard(plan.graph, output) != kNoValue;
      });
    }
  }
  EXPECT_GT(in_place, 100);
}

}  // namespace
}  // namespace octet::planner_test
