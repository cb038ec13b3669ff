#include <gtest/gtest.h>

#include <set>

#include "ir/parse.h"
#include "passes/driver.h"
#include "unit/base/error_of.h"

namespace octet::passes_driver_test {
namespace {

const char* kTyped = R"(graph "g" phase typed
%0 = input batch "x" : f32[4]
%1 = neg(%0) : f32[4]
output "y" %1
)";

TEST(Driver, names_are_unique) {
  std::set<std::string_view> names;
  for (const Pass& pass : all_passes()) EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
}

TEST(Driver, an_unknown_pass_is_named_with_the_known_ones) {
  const Graph graph = parse_graph(kTyped, "text");
  const std::string error = test::error_of([&] { run_passes(graph, {"simplfy"}); });
  EXPECT_NE(error.find("got 'simplfy'"), std::string::npos) << error;
  EXPECT_NE(error.find("recompute_cheap"), std::string::npos) << error;
}

TEST(Driver, a_graph_is_differentiated_once_and_by_a_real_loss) {
  const Graph graph = parse_graph(R"(graph "g" phase logical
%0 = input parameter "w" : real[4]
%1 = reduce_sum(%0) {axes = [0]} : real[]
output "loss" %1
)",
                                  "text");
  EXPECT_EQ(test::error_of([&] {
              run_passes(graph, {"autodiff", "autodiff"});
            }),
            "[autodiff] expected a graph without gradients, got one with output 'grad:w'");
  const Graph counts = parse_graph(R"(graph "g" phase logical
%0 = input parameter "w" : real[4]
%1 = input batch "n" : i32[]
output "loss" %1
)",
                                   "text");
  EXPECT_EQ(test::error_of([&] { run_passes(counts, {"autodiff"}); }),
            "[autodiff] 'loss' must be a real scalar, got i32[]");
}

TEST(Driver, weights_are_cut_where_their_updates_are) {
  const Graph graph = parse_graph(R"(graph "g" phase typed
%0 = input parameter "w" : f32[1024]
%1 = neg(%0) : f32[1024]
output "next:w" %1 updates %0
)",
                                  "text");
  const ParallelOptions parallel = {.ranks = 2, .shard = ShardStage::parameters};
  EXPECT_EQ(
      test::error_of([&] { run_passes(graph, {"gather_parameters"}, parallel); }),
      "[gather_parameters] 'next:w': expected f32[512], as shard_updates makes it for 2 ranks, "
      "got f32[1024]");
}

TEST(Driver, a_pass_says_which_phase_it_wants) {
  const Graph graph = parse_graph(kTyped, "text");
  EXPECT_EQ(test::error_of([&] {
              run_passes(graph, {"simplify", "bf16"});
            }),
            "[passes] bf16: expected a graph in phase logical, got typed");
}

}  // namespace
}  // namespace octet::passes_driver_test
