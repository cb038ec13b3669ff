// Gradients that ranks exchange in E4M3 (parallel.reduce): what their sum is, and what a rank whose
// gradient is not finite does to the others.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "backends/cpu/backend.h"
#include "base/philox.h"
#include "comm/local.h"
#include "compile/expand_updates.h"
#include "formats/codec.h"
#include "ir/parse.h"
#include "passes/parallel/shard_updates.h"
#include "runtime/executor.h"

namespace octet::recipes_reduce_test {
namespace {

constexpr int64_t kRows = 20, kCols = 33, kElems = kRows * kCols;

// dw = dy^T x.
constexpr const char* kStep =
    R"(graph "step" phase typed
%0 = input parameter "w" : f32[20,33]
%1 = input batch "x" : f32[1,33]
%2 = input batch "dy" : f32[1,20]
%3 = input step_scalar "lr" : f32[]
%4 = input step_scalar "adam_c1" : f32[]
%5 = input step_scalar "adam_c2" : f32[]
%6 = input step_scalar "clip" : f32[]
%7 = input state "adam_m:w" : f32[20,33]
%8 = input state "adam_v:w" : f32[20,33]
%9 = gemm(%2, %1) {trans_a = true, role = wgrad} : f32[20,33] @ layer 0, backward, "q_proj"
%10, %11, %12 = global_norm(%6, %9) : f32[], f32[], bool[] @ update, "optimizer"
)"
    R"(%13, %14, %15 = update(%0, %9, %3, %11, %12, %4, %5, %7, %8) )"
    R"({scalars = 2, shape = [20,33]} )"
    R"(: f32[20,33], f32[20,33], f32[20,33] @ update, "optimizer"
output "grad_norm" %10
output "found_nonfinite" %12
output "next:w" %13 updates %0
output "next:adam_m:w" %14 updates %7
output "next:adam_v:w" %15 updates %8
)";

float x_of(int rank, int64_t col) {
  const RandomStream random{.name = name_hash("x")};
  return static_cast<float>(random.bits(static_cast<uint64_t>(rank * 64 + col)) % 2000) / 500 - 2;
}
float dy_of(int rank, int64_t row) {
  return std::ldexp(static_cast<float>(row - 7), -rank - 3);
}

// With beta1 = 0 and no clipping the first moment is the gradient's sum.
struct Result {
  std::vector<float> sum;  // the shards of all ranks, in their order
  std::vector<float> w;    // of rank 0
  std::vector<bool> skipped;
};

Result step(int n_ranks, ShardStage stage, int bad_rank, float bad) {
  auto groups = local_groups(n_ranks);
  std::vector<cpu::Backend> backends;
  for (auto& group : groups)
    backends.push_back(cpu::make_backend(1, cpu::detect_isa(), cpu::RowSums::library, group.get()));
  Result result{.sum = {}, .w = std::vector<float>(kElems), .skipped = {}};
  std::vector<std::vector<float>> sums(groups.size());
  std::vector<char> skipped(groups.size());
  run_local_ranks(groups, [&](Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    cpu::Backend& backend = backends[rank];
    const Graph sharded = shard_updates(
        parse_graph(kStep, "step"),
        {.ranks = n_ranks, .rank = group.rank(), .shard = stage, .reduce = ReduceFormat::e4m3});
    const Graph graph = expand_updates(sharded, {.beta1 = 0, .weight_decay = 0});
    Layout layout;
    layout.rank = group.rank();
    layout.add_inputs(graph);
    const Plan plan = make_plan(graph, layout, *backend.catalogue);
    Arenas arenas(*backend.device, plan.arena_bytes);
    BoundPlan bound(plan, *backend.catalogue, arenas);
    const auto write = [&](const char* name, std::vector<float> values) {
      bound.write_input(name, values.data(), std::ssize(values) * 4);
    };
    const auto n_state = plan.graph.type(plan.graph.find_input("adam_m:w")->value).n_elems();
    std::vector<float> x, dy;
    for (int64_t i = 0; i < kCols; ++i) x.push_back(x_of(group.rank(), i));
    for (int64_t i = 0; i < kRows; ++i) dy.push_back(dy_of(group.rank(), i));
    if (group.rank() == bad_rank) x[5] = bad;
    write("w", std::vector<float>(kElems, 0.5f));
    write("x", x), write("dy", dy);
    write("lr", {0.1f}), write("adam_c1", {1}), write("adam_c2", {0.05f}), write("clip", {0});
    write("adam_m:w", std::vector<float>(static_cast<size_t>(n_state), 0));
    write("adam_v:w", std::vector<float>(static_cast<size_t>(n_state), 0));
    bound.run();
    std::vector<float>& sum = sums[rank];
    sum.resize(static_cast<size_t>(n_state));
    bound.read_output("next:adam_m:w", sum.data(), n_state * 4);
    bound.read_output("found_nonfinite", &skipped[rank], 1);
    if (rank == 0) bound.read_output("next:w", result.w.data(), kElems * 4);
  });
  for (size_t r = 0; r < groups.size(); ++r) {
    if (stage != ShardStage::none || r == 0)
      result.sum.insert(result.sum.end(), sums[r].begin(), sums[r].end());
    result.skipped.push_back(skipped[r] != 0);
  }
  result.sum.resize(kElems);
  return result;
}

float gradient(int rank, int64_t i) {
  return dy_of(rank, i / kCols) * x_of(rank, i % kCols);
}

class ReduceInE4m3 : public testing::TestWithParam<int> {};

TEST_P(ReduceInE4m3, sums_what_one_scale_makes_of_all_ranks_gradients) {
  const int n_ranks = GetParam();
  float amax = 0;
  for (int r = 0; r < n_ranks; ++r) {
    for (int64_t i = 0; i < kElems; ++i) amax = std::max(amax, std::abs(gradient(r, i)));
  }
  float scale = 0x1p-20f;  // the least power of two that keeps the largest below 448
  while (amax / scale > 448) scale *= 2;
  const Result got = step(n_ranks, ShardStage::gradients, -1, 0);
  float worst = 0;
  for (int64_t i = 0; i < kElems; ++i) {
    float sum = 0;
    for (int r = 0; r < n_ranks; ++r)
      sum += decode(Dtype::e4m3, encode(Dtype::e4m3, gradient(r, i) / scale)) * scale;
    ASSERT_EQ(got.sum[static_cast<size_t>(i)], sum) << i;
    worst = std::max(worst, std::abs(sum));
  }
  EXPECT_GT(worst, amax / 2);
  EXPECT_EQ(got.skipped, std::vector<bool>(static_cast<size_t>(n_ranks), false));
  EXPECT_NE(got.w[0], 0.5f);
  EXPECT_EQ(step(n_ranks, ShardStage::none, -1, 0).sum, got.sum);
  EXPECT_EQ(step(n_ranks, ShardStage::none, -1, 0).w, got.w);
}

TEST_P(ReduceInE4m3, is_noticed_by_all_where_one_rank_has_what_is_not_finite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const ShardStage stage : {ShardStage::none, ShardStage::gradients}) {
      const Result got = step(GetParam(), stage, GetParam() - 1, bad);
      EXPECT_EQ(got.skipped, std::vector<bool>(static_cast<size_t>(GetParam()), true)) << bad;
      EXPECT_EQ(got.w, std::vector<float>(kElems, 0.5f)) << bad;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ranks, ReduceInE4m3, testing::Values(2, 3));

}  // namespace
}  // namespace octet::recipes_reduce_test
