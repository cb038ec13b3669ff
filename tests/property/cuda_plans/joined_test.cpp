// Which launches of a decoded token may be one (runtime/joined_launches.h), by the plan for a GPU.
#include "runtime/joined_launches.h"

#include <gtest/gtest.h>

#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "infer/model_spec.h"
#include "ir/op_def.h"

namespace octet {
namespace {

ModelSpec small_llama() {
  ModelSpec spec;
  spec.vocab = 256;
  spec.hidden = 128;
  spec.layers = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.ffn = 256;
  return spec;
}

// The runs of joined steps, their ops by name.
std::vector<std::string> joined_runs(FunctionKey key, FrozenFormat weights) {
  static Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  ProgramOptions options;
  options.forward = forward_builder(resolved(small_llama()));
  options.recipe_options.frozen = weights;
  options.freezes_parameters = weights != FrozenFormat::as_computed;
  options.train = {.batch = key.size.batch, .seq = 16};
  options.inference_only = true;
  Program program(options, *gpu.catalogue, {key});
  const Plan& plan = program.plan(key.name, key.size);
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

FunctionKey decode(int64_t batch) {
  return {function::pick, {.batch = batch, .seq = 1, .cache = 16}};
}

const std::vector<std::string> kRows = {" rope rope", " cache_write cache_write"};
const std::vector<std::string> kFewRows = {" gemm gemm gemm", " rope rope",
                                           " cache_write cache_write", " gemm gemm"};

std::vector<std::string> twice(std::vector<std::string> of_a_layer) {
  const auto n = of_a_layer.size();
  for (size_t i = 0; i < n; ++i) of_a_layer.push_back(of_a_layer[i]);
  return of_a_layer;
}

TEST(JoinedLaunches, of_a_decoded_token_are_its_projections_rotations_and_cache_writes) {
  EXPECT_EQ(joined_runs(decode(1), FrozenFormat::as_computed), twice(kFewRows));
  EXPECT_EQ(joined_runs(decode(1), FrozenFormat::e4m3), twice(kFewRows));
}
TEST(JoinedLaunches, of_many_texts_leave_out_the_library_s_products) {
  EXPECT_EQ(joined_runs(decode(64), FrozenFormat::as_computed), twice(kRows));
}
TEST(JoinedLaunches, of_long_prompts_are_cache_writes_alone) {
  const FunctionKey prefill{function::prefill, {.batch = 16, .seq = 16, .cache = 32}};
  EXPECT_EQ(joined_runs(prefill, FrozenFormat::as_computed), twice({" cache_write cache_write"}));
}

}  // namespace
}  // namespace octet
