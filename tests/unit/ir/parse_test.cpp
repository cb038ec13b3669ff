#include "ir/parse.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace octet::ir_parse_test {
namespace {

constexpr const char* kWhole = R"(graph "g" phase logical
%0 = input batch "x" : real[4,8]
%1 = input parameter "w" : real[8]
%2, %3 = rms_norm(%0, weight = %1) {eps = 1e-06} : real[4,8], real[4] @ layer 2, forward, "norm"
%4 = reduce_sum(%2) {axes = [0,1]} : real[]
output "y" %4
)";

TEST(Parse, types_that_are_not_said_are_inferred) {
  const Graph whole = parse_graph(kWhole);
  for (const char* nodes :
       {"%2, %3 = rms_norm(%0, weight = %1) {eps = 1e-06} @ layer 2, forward, \"norm\"\n"
        "%4 = reduce_sum(%2) {axes = [0,1]}\n",
        "%9:y = rms_norm(%0, weight = %1) {eps = 1e-06} @ layer 2, forward, \"norm\"\n"
        "%4 = reduce_sum(%9) {axes = [0,1]} : real[]\n",
        "%2:rstd, %3:y = rms_norm(%0, weight = %1) {eps = 1e-06} @ layer 2, forward, \"norm\"\n"
        "%4 = reduce_sum(%3) {axes = [0,1]}\n"}) {
    const std::string text(kWhole);
    const size_t begin = text.find("%2, %3"), end = text.find("output");
    const Graph graph = parse_graph(text.substr(0, begin) + nodes + text.substr(end));
    verify(graph);
    EXPECT_EQ(print(graph), print(whole)) << nodes;
  }
}

TEST(Parse, a_node_is_appended_or_nothing_is) {
  Graph graph = parse_graph(kWhole);
  const Graph before = graph;
  for (const char* text :
       {"%9 = add(%0, %1)", "%9 = exp(%7)", "%9 = exp(%0) {axis = 1}",
        "%9 = exp(%0)\n%10 = exp(%0)", "%9 = expp(%0)", "output \"x\" %0", "%9:rstd = exp(%0)"}) {
    EXPECT_THROW(append_node(graph, text), Error) << text;
    EXPECT_EQ(graph, before) << text;
  }
  const ValueIds results = append_node(graph, "%77 = exp(%2)");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(graph.type(results[0]), real_type({4, 8}));
  EXPECT_EQ(graph.nodes.back().operands, ValueIds{2});
  EXPECT_EQ(graph.nodes.size(), before.nodes.size() + 1);
  verify(graph);
}

}  // namespace
}  // namespace octet::ir_parse_test
