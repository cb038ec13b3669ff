// Plans for the GPU of every family of decoders, with the fields that make it differ from Llama.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/backend.h"
#include "compile/program.h"
#include "infer/model_spec.h"
#include "property/cuda_plans/small_llama.h"

namespace octet::cuda_plans_families_test {
namespace {

constexpr int64_t kSeq = 32;

ModelSpec spec_of(const ModelDef& def) {
  ModelSpec spec = test::small_llama();
  spec.kind = def.kind;
  const auto has = [&](std::string_view field) { return find_hf_key(def, field) != nullptr; };
  if (!def.grouped_heads) spec.kv_heads = spec.heads;
  if (has("sliding_window")) spec.sliding_window = kSeq / 2;
  if (has("window_layers")) spec.window_layers = {1, 0};
  if (has("attention_softcap")) spec.attention_softcap = 50;
  if (has("logit_softcap")) spec.logit_softcap = 30;
  if (has("rope_share")) spec.rope_share = 0.5;
  if (has("logits_scaling")) spec.logits_scaling = 8;
  if (has("rope_scaling.llama_4_scaling_beta")) {
    spec.rope_scaling = RopeScaling::yarn;
    spec.rope_original_max_position = kSeq / 4;
    spec.llama4_beta = 0.1;
  }
  return resolved(spec);
}

// Attention whose scores are capped has no kernel: it runs as its steps, and is never uncapped.
TEST(CudaPlans, every_family_is_planned) {
  const Backend gpu = cuda::make_plan_backend({.n_threads = 1});
  for (const ModelDef* def : models()) {
    const ModelSpec spec = spec_of(*def);
    ProgramOptions options;
    options.forward = forward_builder(spec);
    options.recipe = "coat";
    options.train = {.batch = 2, .seq = kSeq};
    Program program(options, *gpu.catalogue);
    int n_attention = 0;
    for (const std::string_view name : program.train_functions()) {
      const Plan& plan = program.plan(name);
      n_attention += static_cast<int>(std::ranges::count_if(plan.steps, [&](const PlanStep& step) {
        return plan.graph.node(step.node).op == OpCode::attention;
      }));
    }
    EXPECT_EQ(n_attention > 0, spec.attention_softcap == 0) << def->name;
  }
}

}  // namespace
}  // namespace octet::cuda_plans_families_test
