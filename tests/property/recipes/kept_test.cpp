// Eight bits save memory on every device: what layers keep for their backward pass, and the peak
// but for the quantized data of the weights at hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/backend.h"
#include "plan/report.h"
#include "property/recipes/planned_runs.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_kept_test {
namespace {

// Weights of a layer take more bytes than its activations, as in 7B with one sequence.
constexpr const char* kGatedModel =
    "kind: llama, hidden: 512, layers: 3, heads: 4, ffn: 1408, vocab: 256, seq: 128";

constexpr int64_t kLargestGroup = int64_t{2} * 512 * 1408;  // elements of gate and up

struct Memory {
  int64_t kept = 0;  // by a layer
  int64_t peak = 0;
  int64_t scratch = 0;  // the most of a kernel: another one on another machine
};

Memory memory_of(const ProgramOptions& options, const Catalogue& catalogue) {
  Program program(options, catalogue);
  const Plan& plan = program.plan(program.train_functions().front());
  const auto kept = kept_per_layer(plan.graph);
  EXPECT_EQ(kept.size(), 3u);
  Memory memory{*std::ranges::max_element(kept), plan.peak_bytes()};
  for (const PlanStep& step : plan.steps) {
    if (step.scratch < 0) continue;
    const Buffer& scratch = plan.buffers[static_cast<size_t>(step.scratch)];
    memory.scratch = std::max(memory.scratch, scratch.bytes);
  }
  return memory;
}

// Kept from update to update where the run asks for it: by row and transposed.
int64_t copies_of_weights(const PlannedRun& run) {
  const WeightCopy copy =
      run.options.recipe_options.weight_copy.value_or(find_recipe(run.options.recipe).weight_copy);
  constexpr int64_t kLayer = int64_t{4} * 512 * 512 + int64_t{3} * 512 * 1408;
  return keeps_codes(copy) ? 3 * 2 * kLayer : 0;
}

void expect_less_than_bf16(const Catalogue& catalogue) {
  for (const char* batch : {"train.batch=1", "train.batch=4"}) {
    const Memory bf16 = memory_of(planned_run("bf16", kGatedModel, {batch}).options, catalogue);
    for (const Recipe* recipe : all_recipes()) {
      if (!recipe->linears.quantized) continue;
      for (const char* choice : {"recipe.weight_copy=auto", "recipe.weight_copy=per_use",
                                 "train.recompute=none", "train.recompute=full"}) {
        const PlannedRun run = planned_run(std::string(recipe->name), kGatedModel, {batch, choice});
        const Memory memory = memory_of(run.options, catalogue);
        EXPECT_LE(memory.kept, bf16.kept) << run.name;
        // Layers that are repeated have a layer's activations beside their gradients.
        if (run.options.recompute != Recompute::full) {
          // Blocks are dequantized to BF16 where GEMMs do not read them.
          const int64_t at_hand = (recipe->linears.w.is_block() ? 3 : 1) * kLargestGroup;
          const int64_t more = std::max<int64_t>(0, memory.scratch - bf16.scratch);
          EXPECT_LE(memory.peak, bf16.peak + copies_of_weights(run) + at_hand + more) << run.name;
        }
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
}  // namespace octet::recipes_kept_test
