#include "plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/parse.h"
#include "plan/report.h"
#include "plan/schedule.h"
#include "unit/base/error_of.h"
#include "unit/plan/named_catalogue.h"

namespace octet::plan_test {
namespace {

using test::NamedCatalogue;

Plan plan_of(const std::string& text, const NamedCatalogue& catalogue = {}) {
  const Graph graph = parse_graph(text, "text");
  Layout layout;
  layout.add_inputs(graph);
  return make_plan(graph, layout, catalogue);
}

const Buffer& buffer(const Plan& plan, ValueId id) {
  return plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
}

const char* kChain = R"(graph "chain" phase typed
%0 = input parameter "w" : f32[256]
%1 = input batch "x" : f32[256]
%2 = mul(%0, %1) : f32[256] @ layer 0, forward, "a"
%3 = exp(%2) : f32[256] @ layer 0, forward, "b"
%4 = reshape(%3) {shape = [16,16]} : f32[16,16] @ layer 0, forward, "b"
%5 = transpose(%4) {perm = [1,0]} : f32[16,16] @ layer 1, forward, "c"
output "y" %5
)";

TEST(Plan, views_do_not_run_and_share_their_operands_buffer) {
  const Plan plan = plan_of(kChain);
  EXPECT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.buffer_of[4], plan.buffer_of[3]);
}

TEST(Plan, a_result_takes_over_a_dying_operand_where_the_op_allows_it) {
  const Plan plan = plan_of(kChain);
  EXPECT_EQ(plan.buffer_of[3], plan.buffer_of[2]);  // exp in place
  EXPECT_NE(plan.buffer_of[2], plan.buffer_of[1]);  // an input stays
  EXPECT_NE(plan.buffer_of[5], plan.buffer_of[4]);  // a transpose may not
}

// The shard is the first half of the buffer that the wider result is as long as.
TEST(Plan, a_result_does_not_take_over_a_part_of_a_buffer) {
  const Plan plan = plan_of(R"(graph "half" phase typed
%0 = input batch "x" : f32[1024]
%1 = input batch "factor" : f32[]
%2 = cast(%0) : bf16[1024] @ update, "a"
%3 = take_shard(%2) {ranks = 2, rank = 0} : bf16[512] @ update, "a"
%4 = rescale(%3, %1) : f32[512] @ update, "a"
output "y" %4
)");
  EXPECT_EQ(plan.buffer_of[3], plan.buffer_of[2]);
  EXPECT_NE(plan.buffer_of[4], plan.buffer_of[2]);
}

TEST(Plan, lanes_are_by_kind_and_an_output_lives_to_the_end) {
  const Plan plan = plan_of(kChain);
  EXPECT_EQ(buffer(plan, 0).arena, Arena::persistent);
  EXPECT_EQ(buffer(plan, 1).arena, Arena::step);
  EXPECT_EQ(buffer(plan, 5).arena, Arena::transient);
  EXPECT_EQ(buffer(plan, 5).last_step, 3);
  EXPECT_EQ(buffer(plan, 5).name, "y");
  EXPECT_EQ(buffer(plan, 3).last_step, 2);
  EXPECT_EQ(plan.peak_bytes(), 4 * 1024);
}

TEST(Plan, scratch_lives_for_its_step_alone) {
  NamedCatalogue catalogue;
  catalogue.scratch[OpCode::exp] = 5000;
  const Plan plan = plan_of(kChain, catalogue);
  ASSERT_GE(plan.steps[1].scratch, 0);
  const Buffer& scratch = plan.buffers[static_cast<size_t>(plan.steps[1].scratch)];
  EXPECT_EQ(scratch.bytes, 5000);
  EXPECT_EQ(scratch.role, MemoryRole::workspace);
  EXPECT_EQ(scratch.first_step, 1);
  EXPECT_EQ(scratch.last_step, 1);
  EXPECT_EQ(plan.steps[0].scratch, -1);
}

TEST(Plan, a_node_without_kernel_is_an_error_that_prints_it) {
  NamedCatalogue catalogue;
  catalogue.missing = OpCode::exp;
  EXPECT_EQ(test::error_of([&] { plan_of(kChain, catalogue); }),
            "[plan] no kernel for node 1: %3 = exp(%2) : f32[256] @ layer 0, forward, \"b\"");
}

TEST(Layout, the_same_input_of_another_type_is_an_error) {
  Layout layout;
  layout.add_inputs(parse_graph(kChain, "text"));
  std::string other = kChain;
  other.replace(other.find("f32[256]"), 8, "bf16[256]");
  EXPECT_EQ(test::error_of([&] { layout.add_inputs(parse_graph(other, "text")); }),
            "[layout] 'w' is bf16[256] here and f32[256] elsewhere");
}

TEST(Layout, inputs_that_the_function_does_not_read_are_planned_too) {
  const Graph graph = parse_graph(kChain, "text");
  Layout layout;
  layout.add_inputs(graph);
  layout.add_inputs(
      parse_graph("graph \"g\" phase typed\n"
                  "%0 = input state \"adam_m:w\" : f32[1000]\n",
                  "text"));
  const Plan plan = make_plan(graph, layout, NamedCatalogue());
  const MemoryReport report = report_memory(plan);
  EXPECT_EQ(report.by_role[static_cast<size_t>(MemoryRole::optimizer)], align_up(4000));
}

// Forward x -> a -> b, two weights, updates that need only their own gradient, or a norm of both.
std::string two_layers(const std::string& norm, const std::string& first,
                       const std::string& second) {
  return R"(graph "g" phase typed
%0 = input parameter "w0" : f32[64]
%1 = input parameter "w1" : f32[64]
%2 = input batch "x" : f32[64]
%3 = mul(%0, %2) : f32[64] @ layer 0, forward, "a"
%4 = mul(%1, %3) : f32[64] @ layer 1, forward, "b"
%5 = mul(%4, %3) : f32[64] @ layer 1, backward, "b"
%6 = mul(%5, %1) : f32[64] @ layer 1, backward, "b"
%7 = mul(%6, %2) : f32[64] @ layer 0, backward, "a"
)" + norm +
         first + second + "output \"next:w1\" %9 updates %1\noutput \"next:w0\" %10 updates %0\n";
}

TEST(Schedule, an_update_runs_as_soon_as_its_gradient_is_ready_and_its_weight_is_read) {
  const Graph graph = parse_graph(
      two_layers("%8 = neg(%5) : f32[64] @ update\n", "%9 = add(%1, %8) : f32[64] @ update\n",
                 "%10 = add(%0, %7) : f32[64] @ update\n"),
      "text");
  // neg (5) right after its gradient; the update of w1 (6) after the last node that reads w1.
  EXPECT_EQ(schedule(graph), (std::vector<NodeId>{0, 1, 2, 5, 3, 6, 4, 7}));
}

TEST(Schedule, a_norm_of_all_gradients_makes_every_update_wait) {
  const Graph graph = parse_graph(
      two_layers("%8 = add(%5, %7) : f32[64] @ update\n", "%9 = add(%1, %8) : f32[64] @ update\n",
                 "%10 = add(%0, %8) : f32[64] @ update\n"),
      "text");
  EXPECT_EQ(schedule(graph), (std::vector<NodeId>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Report, kept_bytes_are_forward_results_that_the_layers_backward_reads) {
  const Graph graph = parse_graph(
      two_layers("%8 = neg(%5) : f32[64] @ update\n", "%9 = add(%1, %8) : f32[64] @ update\n",
                 "%10 = add(%0, %7) : f32[64] @ update\n"),
      "text");
  // Layer 1: %4 and its input %3; layer 0: nothing but inputs of the graph.
  EXPECT_EQ(kept_per_layer(graph), (std::vector<int64_t>{0, 512}));
}

TEST(Report, counts_products_by_their_factors) {
  const Graph graph = parse_graph(R"(graph "g" phase typed
%0 = input parameter "w" : bf16[4,4]
%1 = input batch "x" : bf16[4,4]
%2 = gemm(%1, %0) {trans_b = true, role = forward} : bf16[4,4] @ layer 0, forward, "a"
%3 = gemm(%2, %0) {trans_b = true, role = forward} : bf16[4,4]
%4 = exp(%3) : bf16[4,4]
output "y" %4
)",
                                  "text");
  EXPECT_EQ(count_ops(graph),
            (std::map<std::string, int64_t>{{"exp", 1}, {"gemm bf16 x bf16", 2}}));
  EXPECT_EQ(count_ops(graph, true), (std::map<std::string, int64_t>{{"gemm bf16 x bf16", 1}}));
}

TEST(Report, the_program_is_titles_and_one_line_a_step) {
  EXPECT_EQ(
      program_text(plan_of(kChain), Offsets::yes),
      " step layer role     module           | kernel | results <- operands | bytes\n"
      "    0     0 forward  a                | mul | %2 f32[256] @transient+0 <- %0, %1 | 1024\n"
      "    1     0 forward  b                | exp | %3 f32[256] @transient+0 <- %2 | 1024\n"
      "    2     1 forward  c                | transpose | %5 \"y\" f32[16,16] @transient+1024 "
      "<- %4 | 1024\n");
  EXPECT_THAT(program_text(plan_of(kChain), Offsets::no),
              testing::HasSubstr("| exp | %3 f32[256] <- %2 | 1024\n"));
}

// 2^48 elements a tensor are allowed: some thousands of them are more bytes than 63 bits count.
TEST(Plan, bytes_beyond_what_can_be_counted_are_an_error_that_names_the_tensor) {
  std::string text = "graph \"g\" phase typed\n";
  for (int i = 0; i < 40'000; ++i) {
    text += fmt::format("%{} = input parameter \"w{}\" : f32[16777216,16777216]\n", i, i);
  }
  const Graph graph = parse_graph(text, "text");
  Layout layout;
  EXPECT_EQ(test::error_of([&] { layout.add_inputs(graph); }),
            "[memory] expected a plan of at most 2^60 bytes, got more with w1024");
}

TEST(Plan, scratch_that_cannot_be_counted_is_an_error) {
  NamedCatalogue catalogue;
  for (const int64_t bytes : {int64_t{-8}, INT64_MAX, (int64_t{1} << 60) + 1}) {
    catalogue.scratch[OpCode::exp] = bytes;
    EXPECT_EQ(test::error_of([&] { plan_of(kChain, catalogue); }),
              "[memory] expected a plan of at most 2^60 bytes, got more with exp");
  }
}

class RefusingCatalogue : public NamedCatalogue {
 public:
  std::optional<KernelChoice> choose(const Graph& graph, const Node& node) const override {
    if (node.op == OpCode::exp) throw Error(ErrorCode::invalid_argument, "[exp] is too large");
    return NamedCatalogue::choose(graph, node);
  }
};

TEST(Plan, what_a_kernel_refuses_is_told_with_its_place) {
  const Graph graph = parse_graph(kChain, "text");
  Layout layout;
  layout.add_inputs(graph);
  EXPECT_EQ(test::error_of([&] { make_plan(graph, layout, RefusingCatalogue()); }),
            "[plan] b of layer 0: [exp] is too large");
}

}  // namespace
}  // namespace octet::plan_test
