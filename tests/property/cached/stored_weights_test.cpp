// A model whose layers' matrices are kept in eight bits: what it computes is what the same values
// give that were rounded before.
#include <gtest/gtest.h>

#include "base/philox.h"
#include "infer/inference.h"
#include "infer/matrix_quantizer.h"
#include "io/safetensors.h"
#include "property/recipes/tiny_training.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::cached_stored_weights_test {
namespace {

using test::ScratchFolder;

using Values = std::map<std::string, std::vector<float>>;

Values random_values(const ModelSpec& spec) {
  Values values;
  for (const ParameterSpec& p : model_parameters(spec)) {
    const RandomStream random{.name = name_hash(p.name), .seed = 3};
    auto& v = values[p.name];
    for (int64_t i = 0; i < n_elems(p.shape); ++i)
      v.push_back(random.uniform(static_cast<uint64_t>(i)) - 0.5f);
  }
  return values;
}

WeightReader put_model(const ScratchFolder& folder, const std::string& name, const ModelSpec& spec,
                       const Values& values) {
  std::vector<TensorSource> sources;
  for (const ParameterSpec& p : model_parameters(spec)) {
    sources.push_back(span_source(tensor_decl(p.name, Dtype::f32, p.shape),
                                  std::as_bytes(std::span(values.at(p.name)))));
  }
  write_atomically(posix_files(), folder / name,
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  return WeightReader(posix_files(), folder / name, spec);
}

std::vector<float> logits(const ModelSpec& spec, const WeightReader& weights, FrozenFormat stored) {
  cpu::Backend& backend = tiny::backend();
  const FunctionKey key{function::logits, {.batch = 1, .seq = 6}};
  Inference model(spec, {"fp32", {}, stored}, {&key, 1}, *backend.device, *backend.catalogue);
  model.load(weights);
  BoundPlan& plan = model.function(key.name, key.size);
  const std::vector<int32_t> tokens = {3, 1, 4, 1, 5, 9};
  plan.write_input("tokens", tokens.data(), 24);
  plan.run();
  return model.read_logits(plan, 0, 6);
}

TEST(StoredWeights, compute_what_their_rounded_values_compute) {
  for (const ModelKind kind : {ModelKind::llama, ModelKind::gpt2}) {
    ModelSpec spec = tiny::spec(kind);
    const ScratchFolder folder;
    const Values values = random_values(spec);
    const WeightReader weights = put_model(folder, "a.safetensors", spec, values);
    const std::vector<float> wide = logits(spec, weights, FrozenFormat::as_computed);
    for (const FrozenFormat format :
         {FrozenFormat::e4m3, FrozenFormat::e4m3_blocks, FrozenFormat::hif8}) {
      Values rounded = values;
      for (const ParameterSpec& p : model_parameters(spec)) {
        const bool is_of_layer =
            p.name.find(".weight") != std::string::npos && p.shape.size() == 2 &&
            (p.name.find("layers.") != p.name.npos || p.name.find("h.") != p.name.npos);
        if (is_of_layer) FrozenWeight(weights, p.name, p.shape, format).round(0, rounded[p.name]);
      }
      const WeightReader of_rounded = put_model(folder, "b.safetensors", spec, rounded);
      const std::vector<float> got = logits(spec, weights, format);
      EXPECT_EQ(got, logits(spec, of_rounded, FrozenFormat::as_computed)) << enum_name(format);
      EXPECT_NE(got, wide) << enum_name(format);
    }
  }
}

TEST(StoredWeights, in_bf16_compute_what_rounded_values_compute) {
  const ModelSpec spec = tiny::spec();
  const ScratchFolder folder;
  const Values values = random_values(spec);
  Values rounded = values;
  for (auto& [name, of_one] : rounded) {
    for (float& value : of_one) value = f32_from_bf16(bf16_from_f32(value));
  }
  const WeightReader weights = put_model(folder, "a.safetensors", spec, values);
  const WeightReader of_rounded = put_model(folder, "b.safetensors", spec, rounded);
  EXPECT_EQ(logits(spec, weights, FrozenFormat::bf16),
            logits(spec, of_rounded, FrozenFormat::as_computed));
}

TEST(StoredWeights, a_model_with_quantized_activations_takes_recipes_that_have_none) {
  const ModelSpec spec = tiny::spec();
  cpu::Backend& backend = tiny::backend();
  const FunctionKey key{function::logits, {.batch = 1, .seq = 6}};
  const FakeQuantizeInputs inputs{
      .linears = {{"model.layers.0.mlp.down_proj.weight", {.dtype = Dtype::e4m3, .scale = 1.0f}}},
      .residuals = {}};
  const auto error = [&](const char* recipe) {
    return test::error_of([&] {
      Inference(spec, {recipe, inputs}, {&key, 1}, *backend.device, *backend.catalogue);
    });
  };
  for (const char* recipe : {"coat", "scalify_fp16", "scalify_fp32", "mxfp8"}) {
    EXPECT_EQ(error(recipe), fmt::format("[recipe] expected fp32, bf16, fp16 for a model whose "
                                         "activations are quantized, got '{}'",
                                         recipe));
  }
  for (const char* recipe : {"fp32", "bf16", "fp16"}) EXPECT_EQ(error(recipe), "no error");
}

TEST(StoredWeights, a_weight_that_is_not_finite_is_named) {
  const ModelSpec spec = tiny::spec();
  const ScratchFolder folder;
  Values values = random_values(spec);
  values.at("model.layers.1.self_attn.k_proj.weight")[5] = NAN;
  const WeightReader weights = put_model(folder, "a.safetensors", spec, values);
  EXPECT_NE(test::error_of([&] {
              logits(spec, weights, FrozenFormat::e4m3);
            }).find("model.layers.1.self_attn.k_proj.weight"),
            std::string::npos);
}

}  // namespace
}  // namespace octet::cached_stored_weights_test
