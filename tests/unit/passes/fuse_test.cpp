// The driver of the folds: whatever a fold finds, no node and no value is lost.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/ops/slots.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/lower/fold.h"
#include "passes/lower/fuse.h"
#include "passes/rewrite/simplify.h"

namespace octet::passes_fuse_test {
namespace {

// exp(a) + exp(b): a fold of each exp, which puts the sum of all it knows into the add.
std::optional<Form> exp_into_add(const Matcher& m, const Form& form) {
  if (form.op != OpCode::exp) return std::nullopt;
  const ValueId y = form.results[Unary::y];
  const Node* sum = m.reader(y, OpCode::add);
  if (sum == nullptr) return std::nullopt;
  Form result = form;
  result.op = OpCode::maximum;
  result.operands.push_back(sum->in(Binary::a) == y ? sum->in(Binary::b) : sum->in(Binary::a));
  result.results = sum->results;
  result.stand_at(m.id(*sum));
  return result;
}

Graph rewritten(const std::string& text, FuseReport& report) {
  const Graph graph = parse_graph(text, "text");
  verify(graph);
  const Fold folds[] = {{"exp_into_add", exp_into_add}};
  Graph result = apply_folds(graph, folds, {}, &report);
  verify(result);
  return result;
}

TEST(FuseDriver, of_two_forms_with_one_end_the_first_is_taken_and_no_node_is_lost) {
  FuseReport report;
  const Graph graph = rewritten(R"(graph "g" phase typed
%0 = input batch "a" : f32[4]
%1 = input batch "b" : f32[4]
%2 = exp(%0) : f32[4]
%3 = exp(%1) : f32[4]
%4 = add(%2, %3) : f32[4]
output "y" %4
)",
                                report);
  ASSERT_EQ(graph.nodes.size(), 2u) << print(graph);
  EXPECT_EQ(graph.nodes[0].op, OpCode::exp);
  EXPECT_EQ(graph.nodes[1].op, OpCode::maximum);
  ASSERT_EQ(report.near_misses.size(), 1u);
  EXPECT_NE(report.near_misses[0].find("exp_into_add: %3 = exp(%1)"), std::string::npos)
      << report.near_misses[0];
  EXPECT_NE(report.near_misses[0].find("add belongs to another form"), std::string::npos)
      << report.near_misses[0];
}

TEST(FuseDriver, what_another_node_reads_is_not_taken_away) {
  for (const char* reader : {"%5 = neg(%2) : f32[4]\noutput \"z\" %5\n", "output \"z\" %2\n"}) {
    FuseReport report;
    const Graph graph = rewritten(std::string(R"(graph "g" phase typed
%0 = input batch "a" : f32[4]
%1 = input batch "b" : f32[4]
%2 = exp(%0) : f32[4]
%4 = add(%2, %1) : f32[4]
output "y" %4
)") + reader,
                                  report);
    EXPECT_EQ(graph.nodes[1].op, OpCode::add) << print(graph);
    EXPECT_EQ(report.near_misses.size(), 1u);
  }
}

// A fold that moves a product to the place of its first reader.
std::optional<Form> mul_early(const Matcher& m, const Form& form) {
  if (form.op != OpCode::mul) return std::nullopt;
  const Node* a = m.producer(form.operands[Binary::a], OpCode::exp);
  if (a == nullptr) return std::nullopt;
  Form result = form;
  result.op = OpCode::minimum;
  result.operands[Binary::a] = a->in(Unary::x);
  result.stand_at(m.id(*a));
  return result;
}

TEST(FuseDriver, nothing_is_read_before_it_is_made) {
  const Graph graph = parse_graph(R"(graph "g" phase typed
%0 = input batch "a" : f32[4]
%1 = exp(%0) : f32[4]
%2 = neg(%0) : f32[4]
%3 = mul(%1, %2) : f32[4]
output "y" %3
)",
                                  "text");
  FuseReport report;
  const Fold folds[] = {{"mul_early", mul_early}};
  const Graph result = apply_folds(graph, folds, {}, &report);
  verify(result);
  EXPECT_EQ(print(result), print(graph));
  ASSERT_EQ(report.near_misses.size(), 1u);
  EXPECT_NE(report.near_misses[0].find("%2 is made too late"), std::string::npos)
      << report.near_misses[0];
}

// %4 is a second moment in FP16 with scale %5; `store` is what becomes of it.
Graph update_of(const std::string& store) {
  return parse_graph(
      R"(graph "g" phase typed
%0 = input parameter "w" : bf16[300]
%1 = input batch "g" : bf16[300]
%2 = input state "m" : e4m3:run128[300]
%3 = input state "m_meta" : u32[3]
%4 = input state "v" : fp16[300]
%5 = input state "scale" : f32[]
%6 = input step_scalar "lr" : f32[]
%7 = input step_scalar "found" : bool[]
%8 = input step_scalar "attempt" : u32[]
%9 = input state "master" : f32[300]
%10 = rescale(%4, %5) : f32[300] @ update, "optimizer"
%11, %12, %13, %14:next_master, %15:next_m_meta = )"
      "adamw_step(%0, %1, %2, %10, %6, %6, %6, %6, %7, master = %9, m_meta = %3, attempt = %8) "
      "{weight_decay = 0.1, stream = 9, seed = 4, first = 512} : bf16[300], "
      "e4m3:run128[300], f32[300], f32[300], u32[3] @ update, \"optimizer\"\n" +
          store + R"(output "next:w" %11 updates %0
output "next:m" %12 updates %2
output "next:m_meta" %15 updates %3
output "next:v" %16 updates %4
output "next:master" %14 updates %9
)",
      "text");
}

int64_t count_of(const Graph& graph, OpCode op) {
  return std::ranges::count(graph.nodes, op, &Node::op);
}

TEST(FuseMoments, a_scaled_moment_is_read_and_stored_by_the_update_and_parts_to_the_same_ops) {
  const Graph graph = update_of(
      "%16 = store_scaled(%13, %5, %8) {keeps_positive = true, stream = 48844704561994989, seed = "
      "4, first = 512} "
      ": fp16[300] @ update, \"optimizer\"\n");
  verify(graph);
  const Graph fused = fuse(graph);
  verify(fused);
  ASSERT_EQ(fused.nodes.size(), 1u) << print(fused);
  const Node& step = fused.nodes.front();
  EXPECT_EQ(fused.type(step.in(AdamwStep::v)).dtype, Dtype::fp16);
  EXPECT_EQ(fused.type(step.out(AdamwStep::next_v)).dtype, Dtype::fp16);
  const Graph parts = decompose(fused, [&](const Graph& g, const Node& node) {
    return node.op == OpCode::adamw_step && g.type(node.in(AdamwStep::v)).dtype == Dtype::fp16;
  });
  verify(parts);
  Graph unfused = graph;
  unfused.phase = parts.phase;
  EXPECT_EQ(print(parts), print(unfused));
}

TEST(FuseMoments, that_are_stored_otherwise_stay_wide) {
  const char* const kStores[] = {
      "%16 = store_scaled(%13, %6, %8) {keeps_positive = true, first = 512}",   // another scale
      "%16 = store_scaled(%13, %5, %8) {keeps_positive = false, first = 512}",  // zeros
      "%16 = store_scaled(%13, %5, %8) {keeps_positive = true}"};               // other words
  for (const std::string store : kStores) {
    const Graph fused = fuse(update_of(store + " : fp16[300] @ update, \"optimizer\"\n"));
    EXPECT_EQ(count_of(fused, OpCode::rescale), 1) << store;
    EXPECT_EQ(count_of(fused, OpCode::store_scaled), 1) << store;
  }
}

}  // namespace
}  // namespace octet::passes_fuse_test
