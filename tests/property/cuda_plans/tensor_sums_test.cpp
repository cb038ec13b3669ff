// Rules of plan/tensor_gemm.h for a GEMM beside the row that the GPU's plan takes for it.
#include <gtest/gtest.h>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "ir/print.h"
#include "passes/precision/recipe.h"
#include "plan/kernel_row.h"
#include "plan/tensor_gemm.h"
#include "train/prove_kernels.h"
#include "train/run_setup.h"

namespace octet::cuda_plans_tensor_sums_test {
namespace {

// The rows that may make a GEMM with these sums; nothing: those without a rule.
bool may_be(std::string_view row, const std::optional<TensorGemm>& gemm) {
  const auto begins = [&](std::string_view text) { return row.starts_with(text); };
  // f32 factors; others of blocks, or added to; one or two rows.
  if (!gemm) return !begins("fp8") || row.ends_with("by row");
  if (!gemm->rule->fp8) return begins("library") || begins("decoded");
  if (gemm->scales == TensorGemm::Scales::blocks) return row == "blocks";
  const bool is_fast = gemm->mode == SumMode::one_chain;
  return begins(is_fast ? "fp8 fast" : "fp8 promoted") &&
         row.ends_with("by row") == (gemm->scales == TensorGemm::Scales::rows);
}

TEST(TensorGemm, is_what_the_row_of_the_plan_makes) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  const Target& target = gpu.catalogue->target();
  int n_fp8 = 0, n_halves = 0;
  for (const Recipe* recipe : all_recipes()) {
    // 150 tokens are no multiple of 16, and with 128 a group of 128 is as long as a sum over them.
    for (const auto& [batch, seq] : std::vector<std::pair<std::string, std::string>>{
             {"train.batch=8", "150"}, {"train.batch=1", "150"}, {"train.batch=1", "128"}}) {
      const RunConfig config = load_config(OCTET_SOURCE_DIR "/recipes/llama-3m.yaml",
                                           {"model.layers=2", "model.seq=" + seq,
                                            "recipe=" + std::string(recipe->name), batch})
                                   .config;
      Program program(program_options(config, model_from_config(posix_files(), config)),
                      *gpu.catalogue);
      for (const FunctionKey& key : program.train_keys()) {
        const Plan& plan = program.plan(key);
        for (const PlanStep& step : plan.steps) {
          const Node& node = plan.graph.node(step.node);
          if (node.op != OpCode::gemm) continue;
          const auto gemm = tensor_gemm({plan.graph, node, target}, target.capability);
          EXPECT_TRUE(may_be(step.kernel.row->name, gemm))
              << recipe->name << ": " << step.kernel.row->name << ", " << print(plan.graph, node);
          if (gemm) ++(gemm->rule->fp8 ? n_fp8 : n_halves);
        }
      }
    }
  }
  EXPECT_GT(n_fp8, 100);
  EXPECT_GT(n_halves, 100);
}

TEST(TensorGemm, is_proved_to_the_bit_where_both_sides_have_its_sums) {
  const Backend cpu = cpu::make_backend(1, cpu::detect_isa());
  cpu.catalogue->set_arithmetic(Arithmetic::hopper);
  const RunConfig config =
      load_config(OCTET_SOURCE_DIR "/recipes/llama-3m.yaml", {"model.layers=1", "recipe=coat"})
          .config;
  Program program(program_options(config, model_from_config(posix_files(), config)),
                  *cpu.catalogue);
  const Plan& plan = program.plan(program.train_keys().front());
  int n_same = 0;
  for (const PlanStep& step : plan.steps) {
    const Node& node = plan.graph.node(step.node);
    if (node.op != OpCode::gemm) continue;
    const NodeView view{plan.graph, node, cpu.catalogue->target()};
    EXPECT_EQ(step.kernel.row->name, "tensor sums");
    n_same += closeness_of(view, Arithmetic::hopper) == Closeness::same;
    EXPECT_EQ(closeness_of(view, Arithmetic::own), Closeness::near);
  }
  EXPECT_GT(n_same, 20);
}

}  // namespace
}  // namespace octet::cuda_plans_tensor_sums_test
