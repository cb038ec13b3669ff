// Eight bits save memory on every device: what layers keep for their backward pass, and the peak.
#include <gtest/gtest.h>

#include "backends/cuda/backend.h"
#include "plan/report.h"
#include "property/recipes/planned_runs.h"
#include "property/recipes/tiny_training.h"

namespace octet {
namespace {

// Weights of a layer take more bytes than its activations, as in 7B with one sequence.
constexpr const char* kLlama =
    "kind: llama, hidden: 512, layers: 3, heads: 4, ffn: 1408, vocab: 256, seq: 128";

struct Memory {
  int64_t kept = 0;  // by a layer
  int64_t peak = 0;  // without what the optimizer and the parameters take
};

Memory memory_of(const ProgramOptions& options, const Catalogue& catalogue) {
  Program program(options, catalogue);
  const Plan& plan = program.plan(program.train_functions().front());
  const auto kept = kept_per_layer(plan.graph);
  EXPECT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0], kept[1]);
  return {kept[0], plan.lane_bytes[static_cast<size_t>(Lane::transient)]};
}

void expect_less_than_bf16(const Catalogue& catalogue) {
  for (const char* batch : {"train.batch=1", "train.batch=4"}) {
    const Memory bf16 = memory_of(planned_run("bf16", kLlama, {batch}).options, catalogue);
    for (const Recipe* recipe : all_recipes()) {
      if (!recipe->linears.quantized) continue;
      for (const char* choice : {"recipe.weight_copy=auto", "recipe.weight_copy=per_use",
                                 "train.recompute=none", "train.recompute=full"}) {
        const PlannedRun run = planned_run(std::string(recipe->name), kLlama, {batch, choice});
        const Memory memory = memory_of(run.options, catalogue);
        EXPECT_LE(memory.kept, bf16.kept) << run.name;
        EXPECT_LE(memory.peak, bf16.peak) << run.name;
      }
    }
  }
}

TEST(Kept, of_eight_bit_recipes_is_at_most_that_of_bf16_on_a_cpu) {
  expect_less_than_bf16(*tiny::backend().catalogue);
}

TEST(Kept, of_eight_bit_recipes_is_at_most_that_of_bf16_on_a_gpu) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1, .capability = 90});
  expect_less_than_bf16(*gpu.catalogue);
}

}  // namespace
}  // namespace octet
