// Every recipe with every choice that a run can make, on every family of models: the GPU has a
// kernel for each node of each function, and no product is left to `dot`, which is slow.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "backends/cuda/backend.h"
#include "base/error.h"
#include "compile/program.h"
#include "config/names.h"
#include "infer/fake_quantize_inputs.h"
#include "property/variant_options.h"

namespace octet::cuda_plans_variants_test {
namespace {

using Sets = std::vector<std::string>;

Backend& gpu_backend() {
  static Backend backend = cuda::make_plan_backend({.n_threads = 1});
  return backend;
}

const char* const kFamilies[] = {"llama", "mistral", "qwen2", "qwen3",   "smollm3",
                                 "olmo",  "olmo2",   "gpt2",  "gpt_neox"};

// Choices over a recipe; a recipe for which one has no meaning refuses it.
const Sets kVariants[] = {
    {},
    {"train.accumulate=2"},
    {"train.head_chunk=65536"},
    {"train.head_chunk=65536", "train.accumulate=2"},
    {"train.recompute=none"},
    {"train.recompute=full"},
    {"train.telemetry=10"},
    {"data.document_boundaries=isolate"},
    {"parallel.ranks=4"},
    {"parallel.ranks=4", "train.accumulate=2", "train.head_chunk=65536"},
    {"optim.clip=0"},
    {"optim.master=fp32"},
    {"optim.master=bf16_sr"},
    {"optim.state_m=f32", "optim.state_v=bf16_sr"},
    {"optim.state_m=e4m3+x", "optim.state_v=e4m3+x"},
    {"optim.state_m=e5m2_sr+x", "optim.state_v=e5m2+x", "optim.group=256"},
    {"optim.state_m=e4m3+x", "optim.state_v=e5m2+x", "optim.group=64"},
    {"optim.state_m=hif8", "optim.state_v=hif8+x"},
    {"optim.state_m=de8", "optim.state_v=de8", "optim.f32_below=4096"},
    {"recipe.loss_scaling=global"},
    {"recipe.loss_scaling=adaptive", "train.accumulate=2"},
    {"recipe.scaling=current"},
    {"recipe.scaling=delayed"},
    {"recipe.scaling=periodic"},
    {"recipe.scaling=none"},
    {"recipe.weight_copy=per_use"},
    {"recipe.weight_copy=per_step"},
    {"recipe.weight_copy=w_only"},
    {"recipe.compute=fp16"},
    {"recipe.compute=fp16", "recipe.loss_scaling=adaptive", "train.head_chunk=65536"},
    {"recipe.activations=e5m2"},
    {"recipe.activations=hif8"},
    {"recipe.activations=wide"},
    {"recipe.gradient_rounding=hr"},
    {"recipe.gradient_rounding=rne"},
    {"recipe.gradient_rounding=sr"},
    {"recipe.activation_scale=tensor"},
    {"recipe.mx_scale=floor"},
    {"recipe.tf32=true"},
    {R"(recipe.override={"*": {x: e4m3/1x128}})"},
    {R"(recipe.override={"*": {x: e5m2, w: e4m3/128x128, dy: hif8}})"},
    {R"(recipe.override={"*": {x: hif8/1x64, w: hif8/32x32, dy: e5m2/1x16}})"},
    {R"(recipe.override={"*": {x: e5m2, w: e5m2, dy: e5m2}})"},
    {R"(recipe.override={"*": fp8_block})"},
    {"recipe.override={lm_head: fp8_linear}"},
    {"recipe.override={lm_head: {x: hif8, w: hif8, dy: hif8}}", "train.accumulate=2"},
    {R"(recipe.override={"*": mxfp8})"},
};

// Faults of the plans of all functions; there are none.
std::set<std::string> faults_of(const ProgramOptions& options) {
  const BatchSize cached{.batch = 2, .seq = 16, .cache = 64};
  std::set<std::string> faults;
  const auto look_at = [&](const Plan& plan) {
    for (const Node& node : plan.graph.nodes) {
      if (node.op == OpCode::dot) faults.insert("dot, " + node.tag.origin);
    }
  };
  try {
    Program program(options, *gpu_backend().catalogue);
    program.planned_bytes();
    for (const std::string_view name : program.train_functions()) look_at(program.plan(name));
    look_at(program.plan(function::evaluate));
    look_at(program.plan(function::logits, {.batch = 1, .seq = 32}));
    if (options.lora.rank > 0) return faults;
    for (const std::string_view name :
         {function::prefill, function::fill, function::score, function::decode})
      look_at(program.plan(name, cached));
  } catch (const Error& error) {
    faults.insert(error.what());
  }
  return faults;
}

TEST(CudaVariants, every_recipe_with_every_choice_has_kernels) {
  int n_plans = 0;
  for (const std::string& recipe : recipe_names()) {
    for (const Sets& variant : kVariants) {
      const auto options = test::variant_options("llama", recipe, variant);
      if (!options) continue;
      EXPECT_EQ(faults_of(*options), std::set<std::string>{})
          << recipe << fmt::format(" {}", fmt::join(variant, " "));
      ++n_plans;
    }
  }
  EXPECT_GE(n_plans, 300);
}

TEST(CudaVariants, every_recipe_has_kernels_on_every_family) {
  int n_plans = 0, n_refused = 0;
  for (const char* family : kFamilies) {
    for (const std::string& recipe : recipe_names()) {
      const auto options = test::variant_options(family, recipe, {"train.head_chunk=65536"});
      if (!options && find_recipe(recipe).unit_scales) {
        ++n_refused;
        continue;
      }
      ASSERT_TRUE(options.has_value()) << family << " " << recipe;
      EXPECT_EQ(faults_of(*options), std::set<std::string>{}) << family << " " << recipe;
      ++n_plans;
    }
  }
  EXPECT_EQ(n_plans + n_refused, static_cast<int>(std::size(kFamilies) * recipe_names().size()));
  EXPECT_LE(n_refused, 5);  // unit_scaling is of pre-norm decoders without biases
}

TEST(CudaVariants, adapters_beside_every_stored_base_have_kernels) {
  for (const char* recipe : {"bf16", "fp16", "fp8_linear", "coat", "hif8", "fp8_block", "mxfp8"}) {
    for (int format = 0; format < enum_count(FrozenFormat{}); ++format) {
      auto options = test::variant_options("llama", recipe, {});
      ASSERT_TRUE(options.has_value());
      options->lora = {.rank = 8, .dropout = 0.1, .targets = {"*_proj"}};
      options->recipe_options.frozen = static_cast<FrozenFormat>(format);
      EXPECT_EQ(faults_of(*options), std::set<std::string>{})
          << recipe << " " << enum_name(options->recipe_options.frozen);
    }
  }
}

// Results of `octet ptq`: inputs of linears and operands of sums in eight bits.
TEST(CudaVariants, inference_with_quantized_inputs_has_kernels_in_every_format) {
  for (const Dtype dtype : {Dtype::e4m3, Dtype::e5m2, Dtype::hif8, Dtype::int8}) {
    const double target = format_row(dtype).amax_target;
    const ActivationQuantizer kinds[] = {{dtype, target},
                                         {dtype, target, 0.02f},
                                         {dtype, target, {}, kWholeRow},
                                         {dtype, target, {}, 128, true},
                                         {dtype, target, {}, 32, true}};
    for (const ActivationQuantizer& kind : kinds) {
      for (const char* recipe : {"bf16", "fp16", "fp32"}) {
        auto options = test::variant_options("llama", recipe, {});
        ASSERT_TRUE(options.has_value());
        options->inference_only = true;
        FakeQuantizeInputs inputs;
        inputs.linears["model.layers.0.self_attn.q_proj.weight"] = kind;
        inputs.linears["model.layers.1.mlp.down_proj.weight"] = kind;
        inputs.residuals[residual_name("layers.1", 1, 'a')] = kind;
        options->forward_passes.push_back({"fake_quantize_inputs", [inputs](const Graph& graph) {
                                             return fake_quantize_inputs(graph, inputs);
                                           }});
        Program program(*options, *gpu_backend().catalogue);
        EXPECT_NO_THROW(program.plan(function::logits, {.batch = 1, .seq = 32}))
            << dtype_name(dtype) << " " << recipe << " group " << kind.group;
      }
    }
  }
}

}  // namespace
}  // namespace octet::cuda_plans_variants_test
