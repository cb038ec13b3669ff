// Weights of which an update leaves this rank's shard, and which the next step gathers in place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ir/parse.h"
#include "ir/verify.h"
#include "plan/plan.h"
#include "plan/streams.h"
#include "plan/updates.h"
#include "unit/base/error_of.h"
#include "unit/plan/named_catalogue.h"

namespace octet::plan_left_shards_test {
namespace {

enum : ValueId {
  kLeftW = 0,
  kLeftBefore = 2,
  kLeftOld,
  kLeftWhole,
  kLeftForward,
  kLeftBackward,
  kLeftSum,
  kLeftOldAgain,
  kLeftShard
};

// `next` makes the new shard, of the old one, %8, and the sum of gradients, %7.
Graph graph_of(const std::string& next) {
  return parse_graph(
      "graph \"g\" phase typed\n"
      "%0 = input parameter \"w\" : f32[1024]\n"
      "%1 = input batch \"x\" : f32[1024]\n"
      "%2 = neg(%1) : f32[1024] @ layer 0, forward, \"a\"\n"
      "%3 = take_shard(%0) {ranks = 2, rank = 1} : f32[512] @ layer 1, forward, \"a\"\n"
      "%4 = all_gather(%3) {ranks = 2, shape = [1024], in_place = true} : f32[1024] @ layer 1, "
      "forward, \"a\"\n"
      "%5 = mul(%2, %4) : f32[1024] @ layer 1, forward, \"a\"\n"
      "%6 = mul(%5, %4) : f32[1024] @ layer 1, backward, \"a\"\n"
      "%7 = reduce_scatter(%5) {ranks = 2} : f32[512] @ layer 1, update, \"a\"\n"
      "%8 = take_shard(%4) {ranks = 2, rank = 1} : f32[512] @ update, \"o\"\n"
      "%9 = " +
          next +
          " : f32[512] @ update, \"o\"\n"
          "output \"dx\" %6\n"
          "output \"next:w\" %9 updates %0\n",
      "text");
}

Plan left_plan_of(const std::string& next = "sub(%8, %7)") {
  const Graph graph = graph_of(next);
  Layout layout;
  layout.rank = 1;
  layout.add_inputs(graph);
  test::NamedCatalogue catalogue;
  return make_plan(graph, layout, catalogue, {.bucket_bytes = 1});
}

int left_step_of(const Plan& plan, ValueId result) {
  const auto found =
      std::ranges::find(plan.steps, plan.graph.value(result).producer, &PlanStep::node);
  return found == plan.steps.end() ? -1 : static_cast<int>(found - plan.steps.begin());
}

TEST(LeftShards, are_gathered_where_the_weight_lies_a_layer_before_its_reader) {
  const Plan plan = left_plan_of();
  EXPECT_EQ(place_of(plan, kLeftWhole).offset, place_of(plan, kLeftW).offset);
  EXPECT_EQ(place_of(plan, kLeftWhole).arena, Arena::persistent);
  EXPECT_EQ(left_step_of(plan, kLeftOld), -1);  // no copy
  EXPECT_LT(left_step_of(plan, kLeftWhole), left_step_of(plan, kLeftBefore));
  EXPECT_LT(plan.steps[static_cast<size_t>(left_step_of(plan, kLeftBefore))].joins, 0);
  const int reader = left_step_of(plan, kLeftForward);
  EXPECT_EQ(plan.steps[static_cast<size_t>(reader)].joins, left_step_of(plan, kLeftWhole));
  Plan hasty = plan;
  hasty.steps[static_cast<size_t>(reader)].joins = -1;
  EXPECT_EQ(test::error_of([&] { verify_streams(hasty); }),
            fmt::format("[streams] step {}, mul, reads what a collective is writing", reader));
}

TEST(LeftShards, are_made_in_the_weight_behind_the_last_reader_of_what_was_gathered) {
  const Plan plan = left_plan_of();
  const Place weight = place_of(plan, kLeftW), shard = place_of(plan, kLeftShard);
  EXPECT_EQ(shard.arena, weight.arena);
  EXPECT_EQ(shard.offset, weight.offset + 512 * 4);
  EXPECT_EQ(place_of(plan, kLeftOldAgain).offset, shard.offset);
  // The sum is ready before the reader is: it does not wait for that.
  EXPECT_GT(left_step_of(plan, kLeftShard), left_step_of(plan, kLeftBackward));
  EXPECT_EQ(plan.graph.nodes.size(), 8u);
}

TEST(LeftShards, are_copied_there_where_the_update_may_not_overwrite_what_it_reads) {
  const Plan plan = left_plan_of("transpose(%8) {perm = [0]}");
  const GraphOutput& output = *plan.graph.find_output("next:w");
  ASSERT_EQ(plan.graph.producer(output.value)->op, OpCode::stop_gradient);
  EXPECT_EQ(place_of(plan, kLeftShard).arena, Arena::transient);
  EXPECT_EQ(place_of(plan, output.value).arena, Arena::persistent);
  EXPECT_EQ(place_of(plan, output.value).offset, place_of(plan, kLeftW).offset + 512 * 4);
  EXPECT_GT(left_step_of(plan, output.value), left_step_of(plan, kLeftBackward));
}

TEST(LeftShards, are_parts_of_their_input) {
  const Graph graph = parse_graph(
      "graph \"g\" phase typed\n"
      "%0 = input parameter \"w\" : f32[1024]\n"
      "%1 = input batch \"x\" : f32[384]\n"
      "output \"next:w\" %1 updates %0\n",
      "text");
  EXPECT_EQ(test::error_of([&] { verify(graph); }),
            "[verify g] output 'next:w' is f32[384], its input f32[1024]");
}

}  // namespace
}  // namespace octet::plan_left_shards_test
