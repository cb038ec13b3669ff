// Which launches may be one (plan/joined_launches.h), by the plan for a GPU.
#include "plan/joined_launches.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "infer/model_spec.h"
#include "ir/op_def.h"
#include "plan/report.h"
#include "property/cuda_plans/small_llama.h"

namespace octet::cuda_plans_joined_test {
namespace {

Catalogue& gpu_catalogue() {
  static Backend backend = cuda::make_plan_backend({.n_threads = 1});
  return *backend.catalogue;
}

// The runs of joined steps, their ops by name.
std::vector<std::string> joined_runs(const Plan& plan) {
  std::vector<std::string> runs;
  std::string run;
  const auto joined = find_joined(plan);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Node& node = plan.graph.node(plan.steps[i].node);
    if (joined[i] || (i > 0 && joined[i - 1])) run += fmt::format(" {}", op_def(node.op).name);
    if (!joined[i] && !run.empty()) runs.push_back(std::exchange(run, {}));
  }
  return runs;
}

std::vector<std::string> joined_runs(FunctionKey key, FrozenFormat weights) {
  ProgramOptions options;
  options.forward = forward_builder(resolved(test::small_llama()));
  options.recipe_options.frozen = weights;
  options.freezes_parameters = weights != FrozenFormat::as_computed;
  options.train = {.batch = key.size.batch, .seq = 16};
  options.inference_only = true;
  Program program(options, gpu_catalogue(), {key});
  return joined_runs(program.plan(key.name, key.size));
}

// Options of a program that only generates.
ProgramOptions generating() {
  ProgramOptions options;
  options.forward = forward_builder(resolved(test::small_llama()));
  options.inference_only = true;
  return options;
}
FunctionKey decode(int64_t batch) {
  return {function::pick, {.batch = batch, .seq = 1, .cache = 16}};
}

const std::string kAttention = " rope rope cache_write cache_write attention";

std::vector<std::string> twice(std::vector<std::string> of_a_layer) {
  const auto n = of_a_layer.size();
  for (size_t i = 0; i < n; ++i) of_a_layer.push_back(of_a_layer[i]);
  return of_a_layer;
}

// By the kernels of chains, in order.
std::vector<std::string_view> chain_kernels(const Plan& plan) {
  std::vector<std::string_view> kernels;
  for (const PlanStep& step : plan.steps) {
    if (!step.chain_kernel.empty()) kernels.push_back(step.chain_kernel);
  }
  return kernels;
}

TEST(JoinedLaunches, of_a_decoded_token_are_its_projections_and_all_of_attention) {
  const auto runs = twice({" gemm gemm gemm", kAttention, " gemm gemm"});
  EXPECT_EQ(joined_runs(decode(1), FrozenFormat::as_computed), runs);
  EXPECT_EQ(joined_runs(decode(1), FrozenFormat::e4m3), runs);
}
// What only a chain reads may not lie where another of its blocks still reads or writes.
TEST(JoinedLaunches, of_a_chain_lie_apart_until_it_ends) {
  const FunctionKey key = decode(1);
  Program program(generating(), gpu_catalogue(), {key});
  const Plan& plan = program.plan(key.name, key.size);
  EXPECT_EQ(chain_kernels(plan), (std::vector<std::string_view>{"cached_step", "cached_step"}));
  for (size_t first = 0; first < plan.steps.size(); ++first) {
    size_t last = first;
    while (plan.steps[last].chains_next) ++last;
    for (size_t i = first; i <= last; ++i) {
      const Node& writer = plan.graph.node(plan.steps[i].node);
      for (size_t j = first; j <= last; ++j) {
        const Node& other = plan.graph.node(plan.steps[j].node);
        for (const ValueId made : writer.results) {
          for (const ValueId id : i == j ? writer.results : other.operands) {
            if (made == kNoValue || id == kNoValue || id == made ||
                writer.op == OpCode::cache_write)
              continue;
            EXPECT_FALSE(place_of(plan, made).overlaps(place_of(plan, id))) << made << " " << id;
          }
        }
      }
    }
    first = last;
  }
  const std::string text = program_text(plan, Offsets::no);
  EXPECT_NE(text.find(", one launch with the next\n"), std::string::npos);
  EXPECT_NE(text.find(" launches cached_step\n"), std::string::npos);
}
// Kernels go by their row: what they are called says nothing.
TEST(JoinedLaunches, go_by_row_and_not_by_name) {
  const FunctionKey key = decode(1);
  Program program(generating(), gpu_catalogue(), {key});
  Plan plan = program.plan(key.name, key.size);
  const std::vector<bool> joined = find_joined(plan);
  for (size_t i = 0; i < plan.steps.size(); ++i) plan.steps[i].kernel.name = std::to_string(i);
  EXPECT_EQ(find_joined(plan), joined);
  for (PlanStep& step : plan.steps) step.kernel.name = "one";
  EXPECT_EQ(find_joined(plan), joined);
  EXPECT_GT(std::ranges::count(joined, true), 0);
}
// Each slice of many keys has a block where there are few rows.
TEST(JoinedLaunches, of_a_long_cache_have_blocks_for_slices_of_keys) {
  const FunctionKey few{function::pick, {.batch = 1, .seq = 1, .cache = 600}};
  const FunctionKey many{function::pick, {.batch = 256, .seq = 1, .cache = 600}};
  Program program(generating(), gpu_catalogue(), {few, many});
  EXPECT_EQ(chain_kernels(program.plan(few.name, few.size)),
            std::vector<std::string_view>(2, "cached_slice_step, join_slices"));
  EXPECT_EQ(chain_kernels(program.plan(many.name, many.size)),
            std::vector<std::string_view>(2, "cached_step"));
}
TEST(JoinedLaunches, of_many_texts_leave_out_the_library_s_products) {
  EXPECT_EQ(joined_runs(decode(64), FrozenFormat::as_computed), twice({kAttention}));
}
// Neighbours whose scratch the planner keeps apart.
TEST(JoinedLaunches, of_many_texts_are_the_products_with_weights_that_stay_codes) {
  EXPECT_EQ(joined_runs(decode(64), FrozenFormat::e4m3),
            twice({" gemm gemm gemm", kAttention, " gemm gemm"}));
}
TEST(JoinedLaunches, of_long_prompts_are_cache_writes_alone) {
  const FunctionKey prefill{function::prefill, {.batch = 16, .seq = 16, .cache = 32}};
  EXPECT_EQ(joined_runs(prefill, FrozenFormat::as_computed), twice({" cache_write cache_write"}));
}
// Weights have other results than norms, whose amax nobody wants: both are steps of one row.
TEST(JoinedLaunches, of_an_update_are_steps_of_all_tensors_and_scales) {
  ProgramOptions options;
  options.forward = forward_builder(resolved(test::small_llama()));
  options.recipe = "coat";
  options.train = {.batch = 1, .seq = 16};
  Program program(options, gpu_catalogue());
  const std::vector<std::string> runs = joined_runs(program.plan(function::step));
  // There are 21; some are not together where a weight's amax takes the place of a gradient.
  EXPECT_EQ(std::ranges::count(runs, " adamw_step adamw_step adamw_step adamw_step"), 4);
  EXPECT_EQ(std::ranges::count(runs, " quant_scale quant_scale quant_scale quant_scale"), 1);
}
// Maxima of each layer's four groups of weights that share a scale.
TEST(JoinedLaunches, of_ranks_are_the_maxima_of_new_weights) {
  ModelSpec spec = test::small_llama();
  spec.hidden = 512;  // so that all shards are of one length, and gathered by the next step
  ProgramOptions options;
  options.forward = forward_builder(resolved(spec));
  options.recipe = "coat";
  options.train = {.batch = 1, .seq = 16};
  options.parallel = {.ranks = 2, .rank = 0};
  Program program(options, gpu_catalogue());
  const std::vector<std::string> runs = joined_runs(program.plan(function::step));
  EXPECT_EQ(std::ranges::count(runs, " all_reduce all_reduce all_reduce all_reduce"), 2);
}

}  // namespace
}  // namespace octet::cuda_plans_joined_test
