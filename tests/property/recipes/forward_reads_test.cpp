// Inputs of norms and activations in the forward pass where activations are stored for the backward
// pass (recipe.forward_reads), and that both ways keep the same.
#include <gtest/gtest.h>

#include <bit>

#include "backends/cuda/backend.h"
#include "plan/report.h"
#include "property/recipes/planned_runs.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_forward_reads_test {
namespace {

constexpr const char* kStored = "recipe.forward_reads=stored";

ProgramOptions options_of(const char* recipe, const ModelSpec& spec, ForwardReads reads) {
  ProgramOptions options = tiny::options(recipe, spec);
  options.recipe_options.forward_reads = reads;
  return options;
}

// Loss of the first step, on equal weights.
uint32_t first_loss(const ProgramOptions& options, const ModelSpec& spec) {
  return std::bit_cast<uint32_t>(tiny::losses(options, 1, spec).front());
}

TEST(ForwardReads, unquantized_have_the_loss_of_the_recipe_without_stored_activations) {
  for (const ModelDef* model : models()) {
    const ModelSpec spec = tiny::spec(model->kind);
    const uint32_t linear = first_loss(tiny::options("fp8_linear", spec), spec);
    EXPECT_EQ(first_loss(options_of("coat", spec, ForwardReads::unquantized), spec), linear)
        << model->name;
    EXPECT_NE(first_loss(options_of("coat", spec, ForwardReads::stored), spec), linear)
        << model->name;
  }
}

float grad_norm(const ProgramOptions& options, const cpu::Backend& backend) {
  TrainEngine engine(options, *backend.device, *backend.catalogue);
  tiny::start(engine);
  const Batch batch = tiny::batch(options.train, 0);
  return engine.step({&batch, 1}, tiny::scalars(0)).grad_norm;
}

// Gradients are of the groups: near those of unquantized values, and not equal; and what the
// reference kernels make of them.
TEST(ForwardReads, unquantized_have_gradients_of_the_stored_groups) {
  const ProgramOptions coat = options_of("coat", tiny::spec(), ForwardReads::unquantized);
  const float of_groups = grad_norm(coat, tiny::backend());
  const float of_values = grad_norm(tiny::options("fp8_linear"), tiny::backend());
  EXPECT_NE(of_groups, of_values);
  EXPECT_NEAR(of_groups, of_values, 0.01f * of_values);
  const float of_reference = grad_norm(coat, cpu::make_backend(1, cpu::Isa::scalar));
  EXPECT_NEAR(of_groups, of_reference, 0.002f * of_reference);
}

int64_t most_kept(const ProgramOptions& options, const Catalogue& catalogue) {
  Program program(options, catalogue);
  return std::ranges::max(kept_per_layer(program.plan(program.train_functions().front()).graph));
}

constexpr const char* kShape = "hidden: 512, layers: 3, heads: 4, ffn: 1408, vocab: 256, seq: 128";

void expect_same_kept(const Catalogue& catalogue) {
  for (const ModelDef* model : models()) {
    const std::string shape = fmt::format("kind: {}, {}", model->name, kShape);
    for (const char* recipe : {"coat", "coat-fast", "coat-static"}) {
      const PlannedRun now = planned_run(recipe, shape, {}),
                       before = planned_run(recipe, shape, {kStored});
      EXPECT_EQ(most_kept(now.options, catalogue), most_kept(before.options, catalogue))
          << model->name << " " << recipe;
    }
    const std::vector<std::string> none = {"train.recompute=none"};
    EXPECT_LE(most_kept(planned_run("coat", shape, none).options, catalogue),
              most_kept(planned_run("coat", shape, {none[0], kStored}).options, catalogue))
        << model->name;
  }
}

TEST(ForwardReads, keep_the_same_bytes_both_ways_on_a_cpu) {
  expect_same_kept(*tiny::backend().catalogue);
}

TEST(ForwardReads, keep_the_same_bytes_both_ways_on_a_gpu) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1, .capability = 90});
  expect_same_kept(*gpu.catalogue);
}

// Nothing is stored for a backward pass that is not there.
TEST(ForwardReads, unquantized_store_no_groups_in_evaluation) {
  for (const ForwardReads reads : {ForwardReads::unquantized, ForwardReads::stored}) {
    Program program(options_of("coat", tiny::spec(), reads), *tiny::backend().catalogue);
    const auto counts = count_ops(program.plan(function::evaluate).graph);
    const bool stores = counts.count("quantize_groups") > 0 || counts.count("add_quantize") > 0;
    EXPECT_EQ(stores, reads == ForwardReads::stored);
  }
}

}  // namespace
}  // namespace octet::recipes_forward_reads_test
