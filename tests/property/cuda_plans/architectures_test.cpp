// Products of codes in a plan for another generation of GPUs (backends/cuda/target/architecture.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "infer/model_spec.h"

namespace octet::cuda_plans_architectures_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// The kernels of a training step's products, and the scratch memory that the largest one wants.
struct Products {
  std::set<std::string> kernels;
  int64_t scratch = 0;
};
Products products_of(const char* recipe, int capability) {
  ModelSpec spec;
  spec.vocab = 256;
  spec.hidden = 256;
  spec.layers = 1;
  spec.heads = spec.kv_heads = 4;
  spec.ffn = 512;
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1, .capability = capability});
  ProgramOptions options;
  options.forward = forward_builder(resolved(spec));
  options.recipe = recipe;
  options.train = {.batch = 4, .seq = 128};
  Program program(options, *gpu.catalogue);
  Products found;
  for (const std::string_view name : program.train_functions()) {
    const Plan& plan = program.plan(name);
    for (const PlanStep& step : plan.steps) {
      if (plan.graph.node(step.node).op != OpCode::gemm) continue;
      found.kernels.insert(step.kernel.name);
      found.scratch = std::max(found.scratch, step.kernel.scratch_bytes);
    }
  }
  return found;
}

TEST(Architectures, without_fp8_cores_decode_products_of_codes) {
  const Products ampere = products_of("fp8_linear", 80), ada = products_of("fp8_linear", 89);
  const Products hopper = products_of("fp8_linear", 90);
  EXPECT_THAT(ampere.kernels, Contains(HasSubstr("decoded")));
  EXPECT_THAT(ada.kernels, Not(Contains(HasSubstr("decoded"))));
  EXPECT_EQ(ada.kernels, hopper.kernels);
  EXPECT_EQ(ada.scratch, hopper.scratch);
  EXPECT_GT(ampere.scratch, hopper.scratch);
}

TEST(Architectures, but_hopper_decode_blocks_of_codes) {
  for (const int capability : {80, 86, 89, 100, 120}) {
    const auto kernels = products_of("fp8_block", capability).kernels;
    EXPECT_THAT(kernels, Contains(HasSubstr(": decoded"))) << capability;
    EXPECT_THAT(kernels, Not(Contains(HasSubstr(": blocks")))) << capability;
  }
  EXPECT_THAT(products_of("fp8_block", 90).kernels, Contains(HasSubstr(": blocks")));
}

}  // namespace
}  // namespace octet::cuda_plans_architectures_test
