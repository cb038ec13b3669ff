#include "plan/streams.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/parse.h"
#include "plan/plan.h"
#include "plan/report.h"
#include "plan/schedule.h"
#include "unit/base/error_of.h"
#include "unit/plan/named_catalogue.h"

namespace octet::plan_streams_test {
namespace {

constexpr int kLayers = 4;

// Nodes of each layer: a cut parameter that is gathered for the forward and again for the backward,
// whose gradient is summed over two ranks and goes straight into the update.
std::string layers() {
  std::string text = "graph \"g\" phase typed\n";
  int id = 0;
  for (int l = 0; l < kLayers; ++l)
    text += fmt::format("%{} = input parameter \"w{}\" : f32[256] shard of [512]\n", id++, l);
  text += fmt::format("%{} = input batch \"x\" : f32[512]\n", id++);
  int x = id - 1;
  const auto emit = [&](const std::string& line) {
    text += fmt::format("%{} = ", id) + line + "\n";
    return id++;
  };
  const auto gather = [&](int l, const char* role) {
    return emit(
        fmt::format("all_gather(%{}) {{ranks = 2, shape = [512]}} : f32[512] @ layer {}, {}, \"a\"",
                    l, l, role));
  };
  const auto mul = [&](int a, int b, int l, const char* role) {
    return emit(fmt::format("mul(%{}, %{}) : f32[512] @ layer {}, {}, \"a\"", a, b, l, role));
  };
  for (int l = 0; l < kLayers; ++l) x = mul(gather(l, "forward"), x, l, "forward");
  std::vector<int> gradients;
  for (int l = kLayers - 1; l >= 0; --l) {
    x = mul(gather(l, "backward"), x, l, "backward");
    gradients.push_back(mul(x, x, l, "backward"));
  }
  std::string outputs;
  for (int l = kLayers - 1; l >= 0; --l) {
    const int sum =
        emit(fmt::format("reduce_scatter(%{}) {{ranks = 2}} : f32[256] @ layer {}, update, \"a\"",
                         gradients[static_cast<size_t>(kLayers - 1 - l)], l));
    const int next =
        emit(fmt::format("add(%{}, %{}) : f32[256] @ layer {}, update, \"a\"", l, sum, l));
    outputs += fmt::format("output \"next:w{}\" %{} updates %{}\n", l, next, l);
  }
  return text + outputs;
}

Plan plan_of(const std::string& text, int64_t bucket_bytes, bool reuse_in_place = true,
             std::set<OpCode> with_two_phases = {}) {
  const Graph graph = parse_graph(text, "text");
  Layout layout;
  layout.add_inputs(graph);
  test::NamedCatalogue catalogue;
  catalogue.scratch[OpCode::reduce_scatter] = 1024;
  catalogue.with_two_phases = std::move(with_two_phases);
  return make_plan(graph, layout, catalogue,
                   {.reuse_in_place = reuse_in_place, .bucket_bytes = bucket_bytes});
}

const Node& node_of(const Plan& plan, int step) {
  return plan.graph.node(plan.steps[static_cast<size_t>(step)].node);
}

// "f0" for the forward of layer 0, "g" for a gather, "r" for a sum, "+r" for its finish; "|" for
// a barrier.
std::string order_of(const Plan& plan) {
  std::string text;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    const Node& node = node_of(plan, i);
    const char kind = node.op == OpCode::all_gather       ? 'g'
                      : node.op == OpCode::reduce_scatter ? 'r'
                      : node.op == OpCode::add            ? 'u'
                      : node.tag.role == Role::forward    ? 'f'
                                                          : 'b';
    const PlanStep& step = plan.steps[static_cast<size_t>(i)];
    if (step.begins_collective_group) text += "|";
    text += fmt::format("{}{}{}", step.is_second_phase ? "+" : "", kind, node.tag.layer);
    if (step.ends_collective_group) text += "|";
    text += " ";
  }
  return text;
}

int find(const Plan& plan, OpCode op, int layer, Role role) {
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    const Node& node = node_of(plan, i);
    if (node.op == op && node.tag.layer == layer && node.tag.role == role) return i;
  }
  return -1;
}

TEST(Streams, parameters_are_gathered_a_layer_ahead_and_sums_run_beside_the_next_layer) {
  EXPECT_EQ(order_of(plan_of(layers(), 1)),
            "|g0 g1| f0 |g2| f1 |g3| f2 |g3| f3 |g2| b3 b3 |r3 g1| b2 b2 |r2| u3 |g0| b1 b1 |r1| "
            "u2 b0 b0 |r0| u1 u0 ");
}

TEST(Streams, small_sums_travel_together) {
  EXPECT_EQ(order_of(plan_of(layers(), 1 << 20)),
            "|g0 g1| f0 |g2| f1 |g3| f2 |g3| f3 |g2| b3 b3 |r3 g1| b2 b2 |r2 g0| u3 b1 b1 u2 b0 b0 "
            "|r1 r0| u1 u0 ");
}

TEST(Streams, collectives_are_finished_before_who_needs_them) {
  EXPECT_EQ(
      order_of(plan_of(layers(), 1 << 20, true, {OpCode::all_gather, OpCode::reduce_scatter})),
      "|g0 g1| +g0 f0 |g2| +g1 f1 |g3| +g2 f2 |g3| +g3 f3 |g2| +g3 b3 b3 |r3 g1| +g2 b2 b2 "
      "|r2 g0| +r3 u3 +g1 b1 b1 +r2 u2 +g0 b0 b0 |r1 r0| +r1 u1 +r0 u0 ");
}

constexpr const char* kTwoSums = R"(graph "g" phase typed
%0 = input batch "x" : f32[512]
%1 = input step_scalar "clip" : f32[]
%2 = mul(%0, %0) : f32[512] @ layer 1, backward, "a"
%3 = mul(%2, %0) : f32[512] @ layer 0, backward, "a"
%4 = reduce_scatter(%2) {ranks = 2} : f32[256] @ layer 1, update, "a"
%5 = reduce_scatter(%3) {ranks = 2} : f32[256] @ layer 0, update, "a")";

// A norm of sums that left one by one stands behind all of them, in a run of its own.
TEST(Streams, a_collective_of_what_others_made_begins_a_run) {
  const std::string text = std::string(kTwoSums) + R"(
%6, %7, %8 = sharded_norm(%1, %4) {ranks = 2} : f32[], f32[], bool[] @ update, "optimizer"
output "norm" %6
output "sum" %5
)";
  for (const int64_t bucket_bytes : {1, 3000, 1 << 20}) {
    const Plan plan = plan_of(text, bucket_bytes, true, {OpCode::reduce_scatter});
    const int norm = find(plan, OpCode::sharded_norm, -1, Role::update);
    EXPECT_TRUE(plan.steps[static_cast<size_t>(norm)].begins_collective_group) << bucket_bytes;
  }
}

// The first sum is finished while the second is still on its way.
TEST(Streams, a_collective_is_finished_when_its_own_run_has_ended) {
  const std::string text = std::string(kTwoSums) + R"(
%6, %7, %8 = sharded_norm(%1, %4, %5) {ranks = 2} : f32[], f32[], bool[] @ update, "optimizer"
output "norm" %6
)";
  const Plan plan = plan_of(text, 1, true, {OpCode::reduce_scatter});
  std::vector<int> sums, waits;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    if (node_of(plan, i).op != OpCode::reduce_scatter) continue;
    const PlanStep& step = plan.steps[static_cast<size_t>(i)];
    step.is_second_phase ? waits.push_back(step.joins) : sums.push_back(i);
  }
  EXPECT_EQ(waits, sums);
  EXPECT_EQ(sums.size(), 2u);
}

TEST(Streams, who_reads_waits) {
  const Plan plan = plan_of(layers(), 1);
  const int reader = find(plan, OpCode::mul, 2, Role::forward);
  EXPECT_EQ(plan.steps[static_cast<size_t>(reader)].joins,
            find(plan, OpCode::all_gather, 2, Role::forward));
  const int update = find(plan, OpCode::add, 2, Role::update);
  const int sum = find(plan, OpCode::reduce_scatter, 2, Role::update);
  EXPECT_EQ(plan.steps[static_cast<size_t>(update)].joins, sum);
  EXPECT_EQ(plan.steps[static_cast<size_t>(sum)].stream, Stream::transfer);
}

TEST(Streams, what_a_collective_uses_lives_until_somebody_has_waited_for_it) {
  const Plan plan = plan_of(layers(), 1);
  const int sum = find(plan, OpCode::reduce_scatter, 3, Role::update);
  const int update = find(plan, OpCode::add, 3, Role::update);
  const PlanStep& step = plan.steps[static_cast<size_t>(sum)];
  const int gradient = plan.buffer_of[static_cast<size_t>(node_of(plan, sum).in(0))];
  EXPECT_EQ(plan.buffers[static_cast<size_t>(gradient)].last_step, update - 1);
  EXPECT_EQ(plan.buffers[static_cast<size_t>(step.scratch)].last_step, update - 1);
}

TEST(Streams, the_printed_program_says_what_runs_beside_and_who_waits) {
  const Plan plan = plan_of(layers(), 1, true, {OpCode::all_gather});
  const std::string text = program_text(plan, Offsets::no);
  std::vector<std::string> lines;
  for (size_t at = text.find('\n') + 1; at < text.size(); at = text.find('\n', at) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  ASSERT_EQ(lines.size(), plan.steps.size());
  EXPECT_TRUE(lines[0].find("| all_gather |") != std::string::npos &&
              lines[0].ends_with(" beside computing, barrier before"))
      << lines[0];
  EXPECT_TRUE(lines[1].ends_with(" beside computing, barrier behind")) << lines[1];
  EXPECT_TRUE(lines[2].find("| all_gather (finish) |") != std::string::npos &&
              lines[2].ends_with(", when 1 has ended"))
      << lines[2];
}

// Each fault alone makes the check fail.
TEST(Streams, faults_are_found) {
  const Plan good = plan_of(layers(), 1, false);
  const auto fault = [&](const auto& plant) {
    Plan plan = good;
    plant(plan);
    return test::error_of([&] { verify_streams(plan); });
  };
  EXPECT_EQ(fault([](Plan&) {}), "no error");
  const int reader = find(good, OpCode::mul, 2, Role::forward);
  const int sum = find(good, OpCode::reduce_scatter, 3, Role::update);
  EXPECT_EQ(fault([&](Plan& plan) { plan.steps[static_cast<size_t>(reader)].joins = -1; }),
            fmt::format("[streams] step {}, mul, reads what a collective is writing", reader));
  EXPECT_EQ(
      fault([&](Plan& plan) {
        plan.steps[static_cast<size_t>(sum)].begins_collective_group = false;
      }),
      fmt::format("[streams] step {}, reduce_scatter, begins before its operands are there", sum));
  EXPECT_EQ(
      fault([&](Plan& plan) { plan.steps[static_cast<size_t>(sum)].stream = Stream::compute; }),
      fmt::format("[streams] step {}, reduce_scatter, is on the wrong stream", sum));
  const Plan finished = plan_of(layers(), 1, false, {OpCode::reduce_scatter});
  const auto its = std::ranges::find_if(finished.steps, &PlanStep::is_second_phase);
  Plan late = finished;
  std::swap(late.steps[static_cast<size_t>(its - finished.steps.begin())],
            late.steps[static_cast<size_t>(its - finished.steps.begin()) + 1]);
  EXPECT_EQ(test::error_of([&] { verify_streams(late); }),
            fmt::format("[streams] step {}, add, reads what a collective is writing",
                        its - finished.steps.begin()));
  // The next layer's gradient where this layer's is still being summed.
  const int next = find(good, OpCode::mul, 2, Role::backward);
  const auto move = [&](Plan& plan, ValueId of, ValueId to) {
    auto buffer = [&](ValueId id) -> Buffer& {
      return plan.buffers[static_cast<size_t>(plan.buffer_of[static_cast<size_t>(id)])];
    };
    buffer(of).offset = buffer(to).offset;
  };
  EXPECT_EQ(
      fault([&](Plan& plan) { move(plan, node_of(plan, next).out(0), node_of(plan, sum).in(0)); }),
      fmt::format("[streams] step {}, mul, writes what a collective is reading", next));
}

std::vector<NodeId> scheduled(const std::string& text, int64_t bucket_bytes) {
  return schedule(parse_graph(text, "text"), bucket_bytes);
}

TEST(Schedule, widens_a_state_just_before_its_update) {
  EXPECT_THAT(scheduled(R"(graph "g" phase typed
%0 = input state "a" : fp16[512]
%1 = input state "b" : fp16[512]
%2 = input batch "g" : f32[512]
%3 = input step_scalar "clip" : f32[]
%4, %5, %6 = sharded_norm(%3, %2) {ranks = 2} : f32[], f32[], bool[] @ update, "o"
%7 = rescale(%0, %3) : f32[512] @ update, "o"
%8 = rescale(%7, %5) : f32[512] @ update, "o"
%9 = rescale(%1, %3) : f32[512] @ update, "o"
%10 = rescale(%9, %5) : f32[512] @ update, "o"
output "a" %8
output "b" %10
)",
                        int64_t{1} << 20),
              testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(Schedule, lets_sixteen_small_collectives_begin) {
  constexpr int kMany = 20;
  std::string text = "graph \"g\" phase typed\n%0 = input batch \"x\" : f32[512]\n";
  for (int i = 0; i < kMany; ++i)
    text += fmt::format("%{} = neg(%0) : f32[512] @ backward, \"a\"\n", i + 1);
  for (int i = 0; i < kMany; ++i)
    text += fmt::format("%{} = reduce_scatter(%{}) {{ranks = 2}} : f32[256] @ update, \"a\"\n",
                        kMany + i + 1, i + 1);
  for (int i = 0; i < kMany; ++i) text += fmt::format("output \"y{}\" %{}\n", i, kMany + i + 1);
  std::vector<NodeId> expected(2 * kMany);
  std::iota(expected.begin(), expected.begin() + 16, 0);
  std::iota(expected.begin() + 16, expected.begin() + 32, kMany);
  std::iota(expected.begin() + 32, expected.begin() + 36, 16);
  std::iota(expected.begin() + 36, expected.end(), kMany + 16);
  EXPECT_EQ(scheduled(text, int64_t{1} << 30), expected);
}

// Gradients over `tokens` rows of two weights, 128 KiB each, and of the embedding, 512 KiB; and
// their sums.
std::vector<NodeId> order_of_gradients(int64_t tokens, int64_t bucket_bytes) {
  return scheduled(fmt::format(R"(graph "g" phase typed
%0 = input batch "x" : bf16[{0},256]
%1 = input batch "ids" : i32[{0}]
%2 = gemm(%0, %0) {{trans_a = true, role = wgrad}} : bf16[256,256] @ layer 0, backward, "k"
%3 = gemm(%0, %0) {{trans_a = true, role = wgrad}} : bf16[256,256] @ layer 0, backward, "q"
%4 = neg(%0) : bf16[{0},256] @ layer 0, backward, "q"
%5 = embedding_grad(%4, %1) {{rows = 1024}} : bf16[1024,256] @ backward, "embed"
%6 = reduce_scatter(%2) {{ranks = 2}} : bf16[32768] @ layer 0, update, "k"
%7 = reduce_scatter(%3) {{ranks = 2}} : bf16[32768] @ layer 0, update, "q"
%8 = reduce_scatter(%5) {{ranks = 2}} : bf16[131072] @ update, "embed"
output "k" %6
output "q" %7
output "embed" %8
)",
                               tokens),
                   bucket_bytes);
}

TEST(Schedule, computes_a_long_gemm_beside_the_sum_of_the_last_gradient) {
  EXPECT_THAT(order_of_gradients(8192, 512 << 10), testing::ElementsAre(0, 2, 3, 4, 6, 1, 5));
}
TEST(Schedule, begins_the_bucket_that_the_later_gradient_would_have_filled) {
  EXPECT_THAT(order_of_gradients(8192, 256 << 10), testing::ElementsAre(0, 4, 2, 3, 6, 1, 5));
}
TEST(Schedule, leaves_a_gemm_that_takes_no_longer_than_its_own_sum) {
  EXPECT_THAT(order_of_gradients(2048, 512 << 10), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
}
TEST(Schedule, leaves_a_gemm_whose_sum_goes_with_the_last_gradients) {
  EXPECT_THAT(order_of_gradients(8192, 1 << 20), testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

// Behind it the tensor waits in memory to be quantized.
TEST(Schedule, counts_a_measured_tensor_to_the_bucket_of_its_common_maximum) {
  const auto order = [](int64_t bucket_bytes) {
    return scheduled(R"(graph "g" phase typed
%0 = input batch "x" : f32[512]
%1 = neg(%0) : f32[512] @ backward, "a"
%2, %3 = amax(%1) : f32[], bool[] @ update, "a"
%4 = all_reduce(%2) {ranks = 2, reduction = max} : f32[] @ update, "a"
%5 = neg(%1) : f32[512] @ backward, "b"
output "top" %4
output "y" %5
)",
                     bucket_bytes);
  };
  EXPECT_THAT(order(2048), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order(4096), testing::ElementsAre(0, 1, 3, 2));
}

// Each layer has a maximum, the ranks' common one, a scale, quantized data, its gather, and two
// nodes that read it: 7 l to 7 l + 6.
TEST(Schedule, gathers_quantized_parameters_a_layer_ahead_and_measures_them_two) {
  std::string text = "graph \"g\" phase typed\n", x = "3";
  for (int l = 0; l < 3; ++l)
    text += fmt::format("%{} = input parameter \"w{}\" : f32[256] shard of [512]\n", l, l);
  text += "%3 = input batch \"x\" : f32[512]\n";
  for (int l = 0; l < 3; ++l) {
    const int first = 4 + 8 * l;
    const std::string tag = fmt::format(" @ layer {}, forward, \"a\"\n", l);
    text += fmt::format("%{}, %{} = amax(%{}) : f32[], bool[]", first, first + 1, l) + tag;
    text += fmt::format("%{} = all_reduce(%{}) {{ranks = 2, reduction = max}} : f32[]", first + 2,
                        first) +
            tag;
    text +=
        fmt::format("%{} = quant_scale(%{}) {{target = 448}} : f32[]", first + 3, first + 2) + tag;
    text += fmt::format("%{} = quantize(%{}, %{}) {{target = 448}} : e4m3:tensor[256]", first + 4,
                        l, first + 3) +
            tag;
    text += fmt::format("%{} = all_gather(%{}) {{ranks = 2, shape = [512]}} : e4m3:tensor[512]",
                        first + 5, first + 4) +
            tag;
    text +=
        fmt::format("%{} = dequantize(%{}, %{}) : f32[512]", first + 6, first + 5, first + 3) + tag;
    text += fmt::format("%{} = mul(%{}, %{}) : f32[512]", first + 7, x, first + 6) + tag;
    x = std::to_string(first + 7);
  }
  EXPECT_THAT(scheduled(text + "output \"y\" %" + x + "\n", int64_t{1} << 20),
              testing::ElementsAre(0, 7, 14, 1, 8, 15, 2, 3, 9, 10, 4, 11, 5, 6, 16, 17, 18, 12, 13,
                                   19, 20));
}

// The gathered value is made where others still read an old one.
TEST(Schedule, gathers_nothing_ahead_of_who_reads_what_its_operand_overwrites) {
  EXPECT_THAT(scheduled(R"(graph "g" phase typed
%0 = input state "s" : f32[256]
%1 = input parameter "w" : f32[256]
%2 = input batch "x" : f32[256]
%3 = mul(%2, %0) : f32[256] @ layer 0, forward, "a"
%4 = add(%0, %1) : f32[256] @ layer 1, forward, "a"
%5 = all_gather(%4) {ranks = 2, shape = [512]} : f32[512] @ layer 1, forward, "a"
output "y" %3
output "z" %5
output "s" %4 updates %0
)",
                        int64_t{1} << 20),
              testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace octet::plan_streams_test
