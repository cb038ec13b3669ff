// On a CPU with vector instructions no node of a run is left to a scalar reference kernel.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "property/recipes/planned_runs.h"
#include "property/recipes/tiny_training.h"

namespace octet::recipes_fast_kernels_test {
namespace {

constexpr const char* kLlama =
    "kind: llama, hidden: 64, layers: 2, heads: 4, kv_heads: 2, ffn: 96, vocab: 256, seq: 32";

// The choices that bring ops of their own into plans; a recipe takes those that it can.
const std::vector<std::vector<std::string>> kChoices = {
    {},
    {"recipe.scaling=delayed"},
    {"recipe.scaling=periodic"},
    {"recipe.scaling=none"},
    {"recipe.weight_copy=per_use"},
    {"recipe.weight_copy=per_step"},
    {"recipe.weight_copy=w_only"},
    {"recipe.compute=fp16"},
    {"recipe.compute=fp16", "recipe.loss_scaling=global"},
    {"recipe.loss_scaling=global"},
    {"recipe.loss_scaling=adaptive"},
    {"recipe.activations=e4m3"},
    {"recipe.activation_scale=tensor"},
    {"recipe.gradient_rounding=hr"},
    {"recipe.gradient_rounding=rne"},
    {"recipe.gradient_rounding=sr"},
    {"recipe.mx_scale=floor"},
    {"recipe.rescale=norms"},
    {"recipe.rescale=norms_and_gradients"},
    {"recipe.scaled_gradient=fp16"},
    {"recipe.override={'layers.0.*': bf16, '*.down_proj': {x: e4m3/1x128, w: e4m3/128x128}}"},
    {"recipe.override={lm_head: fp8_linear}"},
    {"optim.master=fp32"},
    {"optim.master=bf16_sr"},
    {"optim.master=fp16_sr"},
    {"optim.master=fp16_scaled"},
    {"optim.state_m=e4m3+x", "optim.state_v=e5m2+x"},
    {"optim.state_m=fp16_sr", "optim.state_v=fp16_sr"},
    {"optim.state_m=bf16", "optim.state_v=bf16_sr"},
    {"optim.clip=0"},
    {"train.accumulate=2"},
    {"train.recompute=cheap"},
    {"train.recompute=full"},
    {"train.head_chunk=4096"},
    {"data.document_boundaries=isolate"},
    {"lora.rank=4", "lora.base=e4m3"},
    {"lora.rank=4", "lora.base=e4m3/128x128"},
    {"lora.rank=4", "lora.base=hif8", "lora.dropout=0.1"},
    {"parallel.ranks=2", "parallel.shard=parameters"},
};

std::set<std::string> reference_kernels(const ProgramOptions& options) {
  Program program(options, *tiny::backend().catalogue);
  std::vector<std::string_view> functions = program.train_functions();
  functions.push_back(function::evaluate);
  if (program.has_derived()) functions.push_back(function::prepare_state);
  std::set<std::string> names;
  for (const std::string_view name : functions) {
    for (const PlanStep& step : program.plan(name).steps) {
      if (step.kernel.reference) names.insert(step.kernel.name);
    }
  }
  return names;
}

TEST(FastKernels, leave_no_node_of_any_recipe_to_the_reference) {
  if (cpu::detect_isa() == cpu::Isa::scalar) GTEST_SKIP() << "no vector instructions";
  for (const Recipe* recipe : all_recipes()) {
    size_t n_taken = 0;
    for (const auto& choice : kChoices) {
      try {
        const PlannedRun run = planned_run(std::string(recipe->name), kLlama, choice);
        EXPECT_EQ(reference_kernels(run.options), std::set<std::string>()) << run.name;
        ++n_taken;
      } catch (const Error& error) {  // not with this recipe
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      }
    }
    EXPECT_GE(n_taken, 8u) << recipe->name;
  }
}

TEST(FastKernels, are_there_for_other_models) {
  if (cpu::detect_isa() == cpu::Isa::scalar) GTEST_SKIP() << "no vector instructions";
  for (const char* kind :
       {"gpt2", "olmo", "olmo2", "qwen2", "qwen3", "gpt_neox", "bert", "bert, head: classes",
        "bert, head: span", "roberta", "vit, image_size: 16, patch_size: 4",
        "deit, image_size: 16, patch_size: 4"}) {
    const std::string model = fmt::format(
        "kind: {}, hidden: 64, layers: 1, heads: 4, ffn: 96{}", kind,
        std::string(kind).find("it, ") == std::string::npos ? ", vocab: 256, seq: 32" : "");
    for (const Recipe* recipe : all_recipes()) {
      if (recipe->unit_scales && std::string_view(kind) != "qwen3") continue;
      const PlannedRun run = planned_run(std::string(recipe->name), model, {});
      EXPECT_EQ(reference_kernels(run.options), std::set<std::string>()) << kind << " " << run.name;
    }
  }
}

}  // namespace
}  // namespace octet::recipes_fast_kernels_test
