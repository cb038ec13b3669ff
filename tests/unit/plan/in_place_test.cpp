// New weights of ranks that are made and gathered where the old ones lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ir/parse.h"
#include "plan/plan.h"
#include "plan/report.h"
#include "plan/streams.h"
#include "unit/base/error_of.h"
#include "unit/plan/named_catalogue.h"

namespace octet::plan_in_place_test {
namespace {

// By name of what they are in the graph below.
enum : ValueId { kW = 0, kEarly = 3, kDw = 5, kDx, kBefore, kSum, kOldShard, kShard, kWhole };

// w of n elements: its gradient dw is made with the old w, then dx is, which reads it too, then
// what comes before this layer. `next` makes the new shard, of the old one, %9, of the sum of dw,
// %8, or of what is there first, %3; `more` stands behind the update, from %12 on.
struct Case {
  int n = 1024;
  std::string next = "sub(%9, %8)";
  std::string more = "";
};

Graph graph_of(const Case& c) {
  const int shard = (c.n + 511) / 512 * 256;
  return parse_graph(
      fmt::format("graph \"g\" phase typed\n"
                  "%0 = input parameter \"w\" : f32[{0}]\n"
                  "%1 = input batch \"x\" : f32[{0}]\n"
                  "%2 = input batch \"y\" : f32[{1}]\n"
                  "%3 = neg(%2) : f32[{1}] @ layer 1, forward, \"a\"\n"
                  "%4 = mul(%0, %1) : f32[{0}] @ layer 1, forward, \"a\"\n"
                  "%5 = mul(%4, %0) : f32[{0}] @ layer 1, backward, \"a\"\n"
                  "%6 = mul(%5, %0) : f32[{0}] @ layer 1, backward, \"a\"\n"
                  "%7 = mul(%6, %1) : f32[{0}] @ layer 0, backward, \"a\"\n"
                  "%8 = reduce_scatter(%5) {{ranks = 2}} : f32[{1}] @ layer 1, update, \"a\"\n"
                  "%9 = take_shard(%0) {{ranks = 2, rank = 1}} : f32[{1}] @ update, \"o\"\n"
                  "%10 = {2} : f32[{1}] @ update, \"o\"\n"
                  "%11 = all_gather(%10) {{ranks = 2, shape = [{0}]}} : f32[{0}] @ update, \"o\"\n"
                  "{3}output \"dx\" %7\n"
                  "output \"sum\" %8\n"
                  "output \"next:w\" %11 updates %0\n",
                  c.n, shard, c.next, c.more),
      "text");
}

Plan plan_of(const Case& c, int64_t bucket_bytes = 1) {
  const Graph graph = graph_of(c);
  Layout layout;
  layout.rank = 1;
  layout.add_inputs(graph);
  test::NamedCatalogue catalogue;
  catalogue.with_two_phases = {OpCode::reduce_scatter};
  return make_plan(graph, layout, catalogue, {.bucket_bytes = bucket_bytes});
}

int step_of(const Plan& plan, ValueId result) {
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    const PlanStep& step = plan.steps[static_cast<size_t>(i)];
    if (!step.is_second_phase && plan.graph.value(result).producer == step.node) return i;
  }
  return -1;
}
bool gathers_in_place(const Plan& plan) {
  const auto gather = std::ranges::find(plan.graph.nodes, OpCode::all_gather, &Node::op);
  return std::get<CollectiveAttrs>(gather->attrs).in_place;
}

TEST(InPlace, an_update_writes_its_shard_into_the_weight_and_the_others_are_gathered_around_it) {
  const Plan plan = plan_of({});
  EXPECT_TRUE(gathers_in_place(plan));
  const Place weight = place_of(plan, kW), shard = place_of(plan, kShard);
  EXPECT_EQ(shard.arena, weight.arena);
  EXPECT_EQ(shard.offset, weight.offset + 512 * 4);
  EXPECT_EQ(shard.bytes, 512 * 4);
  EXPECT_EQ(place_of(plan, kOldShard).offset, shard.offset);
  EXPECT_EQ(place_of(plan, kWhole).offset, weight.offset);
  EXPECT_EQ(step_of(plan, kOldShard), -1);  // no copy
  EXPECT_NE(program_text(plan, Offsets::yes).find("f32[512] @persistent+2048 <-"),
            std::string::npos)
      << program_text(plan, Offsets::yes);
}

TEST(InPlace, shards_of_weights_need_no_memory_of_their_own) {
  int64_t bytes = 0;  // of dw, of dx, whose place what comes before takes, and of the sum
  for (const Buffer& buffer : plan_of({}).buffers) {
    const bool is_kept = buffer.arena == Arena::transient && buffer.first_step > 0;
    bytes += is_kept && buffer.role != MemoryRole::activations ? buffer.bytes : 0;
  }
  EXPECT_EQ(bytes, 512 * 4);
}

// Neither before the last reader of the old weight, nor behind the backward, where no norm is
// waited for.
TEST(InPlace, an_update_runs_as_soon_as_nobody_reads_the_old_weight) {
  for (const int64_t bucket_bytes : {1, 1 << 20}) {
    const Plan plan = plan_of({.next = "sub(%9, %3)"}, bucket_bytes);
    EXPECT_TRUE(gathers_in_place(plan));
    EXPECT_GT(step_of(plan, kShard), step_of(plan, kDx)) << bucket_bytes;
    EXPECT_LT(step_of(plan, kShard), step_of(plan, kBefore)) << bucket_bytes;
  }
}

TEST(InPlace, stays_off_where_a_shard_is_longer_than_what_is_left) {
  const Plan plan = plan_of({.n = 1000});
  EXPECT_FALSE(gathers_in_place(plan));
  EXPECT_EQ(place_of(plan, kShard).arena, Arena::transient);
  EXPECT_GE(step_of(plan, kOldShard), 0);
}

TEST(InPlace, stays_off_where_the_old_weight_is_read_behind_the_update) {
  EXPECT_FALSE(gathers_in_place(plan_of({.more = "%12 = neg(%9) : f32[512] @ update, \"o\"\n"
                                                 "output \"old\" %12\n"})));
}

TEST(InPlace, stays_off_where_the_update_may_not_overwrite_what_it_reads) {
  EXPECT_FALSE(gathers_in_place(plan_of({.next = "transpose(%9) {perm = [0]}"})));
}

TEST(InPlace, stays_off_where_the_shard_is_handed_out) {
  EXPECT_FALSE(gathers_in_place(plan_of({.more = "output \"shard\" %10\n"})));
}

// Who reads the new shard need not wait for the others', and who reads the whole must.
TEST(InPlace, the_own_shard_may_be_read_while_the_others_come) {
  const Plan plan = plan_of({.more = "%12 = neg(%10) : f32[512] @ update, \"o\"\n"
                                     "%13 = neg(%11) : f32[1024] @ update, \"o\"\n"
                                     "output \"minus\" %12\noutput \"all\" %13\n"});
  ASSERT_TRUE(gathers_in_place(plan));
  const int own = step_of(plan, 12), all = step_of(plan, 13);
  EXPECT_EQ(plan.steps[static_cast<size_t>(all)].joins, step_of(plan, kWhole));
  Plan hasty = plan;
  hasty.steps[static_cast<size_t>(all)].joins = -1;
  EXPECT_EQ(test::error_of([&] { verify_streams(hasty); }),
            fmt::format("[streams] step {}, neg, reads what a collective is writing", all));
  // The own shard read behind the gather's begin: the last step before it goes behind it.
  const int gather = step_of(plan, kWhole);
  ASSERT_EQ(own + 1, gather);
  Plan beside = plan;
  std::swap(beside.steps[static_cast<size_t>(own)], beside.steps[static_cast<size_t>(gather)]);
  beside.steps[static_cast<size_t>(all)].joins = own;
  EXPECT_EQ(test::error_of([&] { verify_streams(beside); }), "no error");
}

}  // namespace
}  // namespace octet::plan_in_place_test
