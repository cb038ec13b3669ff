#include "compile/program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plan/report.h"
#include "unit/base/error_of.h"
#include "unit/compile/small_program.h"

namespace octet::compile_program_test {
namespace {

using test::NamedCatalogue;
using test::small_options;

const NamedCatalogue kNamed;

bool has_input(const Plan& plan, std::string_view name) {
  return plan.graph.find_input(name) != nullptr;
}

TEST(Program, one_function_trains_where_nothing_is_accumulated) {
  Program program(small_options("bf16"), kNamed);
  EXPECT_EQ(program.train_functions(), std::vector{function::step});
  const Plan& step = program.plan(function::step);
  EXPECT_NE(step.graph.find_output("loss"), nullptr);
  EXPECT_NE(step.graph.find_output("next:w0"), nullptr);
  EXPECT_EQ(step.graph.find_output("grad:w0"), nullptr);
  EXPECT_FALSE(has_input(step, "accumulated:w0"));
}

TEST(Program, accumulation_takes_three_functions_that_share_gradients) {
  ProgramOptions options = small_options("fp8_linear");
  options.accumulate = 3;
  Program program(options, kNamed);
  EXPECT_EQ(program.train_functions(),
            (std::vector{function::micro_first, function::micro_next, function::update}));
  const Plan& first = program.plan(function::micro_first);
  const Plan& next = program.plan(function::micro_next);
  const Plan& update = program.plan(function::update);
  const auto place = [](const Plan& plan, std::string_view name) {
    const ValueId id = plan.graph.find_input(name)->value;
    const Buffer& b = plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
    return std::pair(b.arena, b.offset);
  };
  for (const char* name : {"accumulated:w0", "accumulated:head", "accumulated:quantizer_flag"}) {
    EXPECT_EQ(place(first, name), place(next, name)) << name;
    EXPECT_EQ(place(first, name), place(update, name)) << name;
  }
  EXPECT_EQ(place(first, "w0"), place(update, "w0"));
  EXPECT_FALSE(has_input(update, "x"));
  EXPECT_FALSE(has_input(first, "adam_m:w0"));
}

bool has_op(const Plan& plan, OpCode op) {
  return std::ranges::any_of(plan.graph.nodes, [&](const Node& node) { return node.op == op; });
}

// Its gradient, which the target has, would be that of the op.
TEST(Program, steps_of_an_op_that_is_expanded_are_what_is_differentiated) {
  const ProgramOptions options = small_options("bf16", {.has_recurrence = true});
  Program whole(options, kNamed);
  const Plan& step = whole.plan(function::step);
  EXPECT_TRUE(has_op(step, OpCode::gated_delta));
  EXPECT_TRUE(has_op(step, OpCode::gated_delta_grad));
  NamedCatalogue catalogue;
  catalogue.missing = OpCode::gated_delta;
  Program expanded(options, catalogue);
  const Plan& steps = expanded.plan(function::step);
  EXPECT_FALSE(has_op(steps, OpCode::gated_delta));
  EXPECT_FALSE(has_op(steps, OpCode::gated_delta_grad));
  EXPECT_TRUE(has_op(steps, OpCode::batched_gemm));
  EXPECT_FALSE(has_op(expanded.plan(function::evaluate), OpCode::gated_delta));
}

TEST(Program, what_has_no_kernel_is_planned_as_its_decomposition) {
  NamedCatalogue catalogue;
  catalogue.missing = OpCode::rms_norm;
  Program program(small_options("bf16"), catalogue);
  const Plan& plan = program.plan(function::evaluate);
  const auto ops_of = [&](OpCode op) {
    return std::count_if(plan.graph.nodes.begin(), plan.graph.nodes.end(),
                         [&](const Node& node) { return node.op == op; });
  };
  EXPECT_EQ(ops_of(OpCode::rms_norm), 0);
  EXPECT_EQ(ops_of(OpCode::rsqrt), 2);
  catalogue.missing = OpCode::rsqrt;  // a primitive, which no op needs then
  EXPECT_NO_THROW(Program(small_options("bf16"), catalogue).plan(function::evaluate));
}

TEST(Program, a_plan_is_compiled_once) {
  Program program(small_options("bf16"), kNamed);
  const Plan* plan = &program.plan(function::evaluate);
  EXPECT_EQ(&program.plan(function::evaluate), plan);
  EXPECT_NE(&program.plan(function::evaluate, {.batch = 1, .seq = 8}), plan);
}

TEST(Program, each_typed_graph_is_built_once) {
  ProgramOptions options = small_options("fp8_linear");
  options.accumulate = 3;
  std::vector<ForwardKind> built;
  const ForwardBuilder forward = options.forward;
  options.forward = [&](const BatchSize& size, ForwardKind kind) {
    built.push_back(kind);
    return forward(size, kind);
  };
  Program program(options, kNamed);
  program.planned_bytes();
  // One for the training functions and what is derived from weights, one for evaluate.
  EXPECT_EQ(built, (std::vector{ForwardKind::loss, ForwardKind::loss}));
}

TEST(Program, the_log_names_each_pass_of_each_graph) {
  Program program(small_options("coat"), kNamed);
  program.plan(function::step);
  std::vector<std::string> passes;
  for (const PassRecord& record : program.pass_log()) passes.push_back(record.pass);
  EXPECT_EQ(passes, (std::vector<std::string>{"autodiff", "simplify", "coat", "recompute",
                                              "compose", "expand_updates", "fuse", "lower"}));
  EXPECT_EQ(program.pass_log().back().graph, "step");
  for (size_t i = 1; i < passes.size(); ++i) {
    EXPECT_EQ(program.pass_log()[i].nodes_before, program.pass_log()[i - 1].nodes_after);
  }
}

TEST(Program, functions_beyond_the_training_step_join_its_layout) {
  ProgramOptions options = small_options("bf16");
  const FunctionKey wider{function::evaluate, {.batch = 16, .seq = 128}};
  Program program(options, kNamed, {wider});
  EXPECT_EQ(program.layout().slots.size(), Program(options, kNamed).layout().slots.size());
  EXPECT_GT(program.plan(wider.name, wider.size).arena_bytes[2],
            program.plan(function::evaluate).arena_bytes[2]);
}

TEST(Program, inference_has_no_states) {
  ProgramOptions options = small_options("bf16");
  options.inference_only = true;
  Program program(options, kNamed);
  for (const auto& [name, slot] : program.layout().slots)
    EXPECT_EQ(slot.kind, InputKind::parameter) << name;
}

TEST(Program, fusions_that_did_not_fire_are_listed_and_strictly_an_error) {
  ProgramOptions options = small_options("fp8_linear", {.layers = 1, .norm_read_twice = true});
  Program lax(options, kNamed);
  const auto& misses = lax.plan(function::evaluate).near_misses;
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_NE(misses[0].find("read by add too"), std::string::npos);
  options.strict_fusion = true;
  Program strict(options, kNamed);
  const std::string error = test::error_of([&] { strict.plan(function::evaluate); });
  EXPECT_EQ(error,
            "[fuse] recipe.strict_fusion: 1 did not fire in evaluate, the first: " + misses[0]);
  Program fused(small_options("fp8_linear"), kNamed);
  EXPECT_TRUE(fused.plan(function::evaluate).near_misses.empty());
}

TEST(Program, full_recompute_keeps_the_layers_input_alone) {
  ProgramOptions options = small_options("bf16");
  options.recompute = Recompute::full;
  Program program(options, kNamed);
  const int64_t input = 8 * 64 * 32 * 2;
  const auto kept = kept_per_layer(program.plan(function::step).graph);
  EXPECT_EQ(kept[0], 0);  // its input is the graph's
  EXPECT_EQ(kept[1], input);
}

}  // namespace
}  // namespace octet::compile_program_test
