// Codes and scales that a run exports whose GEMMs read weights in E4M3 with one scale are those
// that they read.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "backends/cpu/backend.h"
#include "base/hash.h"
#include "cli/train/tiny_run.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "io/model_files.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace octet::train_tensor_export_test {
namespace {

using test::ScratchFolder;

struct TensorWeight {
  uint64_t data = 0;  // hash of the E4M3 data
  float scale = 0;
};

float number_in(const std::vector<std::byte>& bytes) {
  float value = 0;
  EXPECT_EQ(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

// Operands that a step makes of its parameters, by parameter: the E4M3 data as the weight lies, and
// what they are multiplied by.
std::map<std::string, TensorWeight> operands_of_a_step(Trainer& trainer) {
  std::map<std::string, TensorWeight> found;
  TrainEngine& engine = trainer.engine();
  engine.observe([&](const Plan& plan, const PlanStep& step, bool before) {
    if (before) return;
    const Node& node = plan.graph.node(step.node);
    if (node.tag.role == Role::update) return;  // which stores moments in E4M3, too
    const GraphInput* weight = nullptr;
    ValueId scale = kNoValue, data = kNoValue;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) continue;
      const GraphInput* input = plan.graph.input_of(id);
      if (input != nullptr && input->kind == InputKind::parameter) weight = input;
      if (plan.graph.type(id).shape.empty() && plan.graph.type(id).dtype == Dtype::f32) scale = id;
    }
    for (const ValueId id : node.results) {
      if (id == kNoValue) continue;
      const TensorType& type = plan.graph.type(id);
      // Behind the maximum that it is made of.
      if (type.shape.empty() && type.dtype == Dtype::f32) scale = id;
      const bool is_as_it_lies =
          weight != nullptr && type.shape == plan.graph.type(weight->value).shape;
      if (type.dtype == Dtype::e4m3 && is_as_it_lies && data == kNoValue) data = id;
    }
    if (weight == nullptr || data == kNoValue || scale == kNoValue) return;
    if (found.contains(weight->name)) return;
    found[weight->name] = {xxh64(engine.arenas().read(plan, data)),
                           number_in(engine.arenas().read(plan, scale))};
  });
  trainer.step();
  engine.observe({});
  return found;
}

RunConfig config_of(const ScratchFolder& folder, const std::string& recipe) {
  return test::tiny_config(
      folder, {"model={kind: llama, hidden: 64, layers: 2, heads: 4, kv_heads: 2, ffn: 96, vocab: "
               "256, seq: 24}",
               recipe, "recipe.weight_copy=per_use", "train.steps=3", "train.save_every=3"});
}

void expect_export_of_operands(const std::string& recipe, size_t n_eight) {
  SCOPED_TRACE(recipe);
  const ScratchFolder folder;
  const RunConfig config = config_of(folder, recipe);
  const Dataset data = open_run_data(posix_files(), config, resolved(config.model));
  const cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  std::map<std::string, TensorWeight> operands;
  {
    Trainer trainer(config, data, {posix_files(), *backend.device, *backend.catalogue});
    trainer.run(StartMode::fresh, {});
    operands = operands_of_a_step(trainer);  // of the weights that were saved
  }
  EXPECT_EQ(operands.size(), n_eight);
  const std::string out = folder / "out";
  export_model(posix_files(), find_model_source(posix_files(), folder / "run"), out,
               {.dtype = ExportDtype::fp8_tensor});
  const ModelFiles exported = ModelFiles::open(posix_files(), out);
  size_t n_shared = 0;
  for (const auto& [name, operand] : operands) {
    EXPECT_EQ(exported.at(name).stored, SafeDtype::f8_e4m3) << name;
    EXPECT_EQ(xxh64(exported.read(name)), operand.data) << name;
    EXPECT_EQ(number_in(exported.read(name + "_scale")), operand.scale) << name;
    for (const auto& [other, its] : operands) n_shared += its.scale == operand.scale ? 1 : 0;
  }
  EXPECT_GT(n_shared, operands.size());  // q, k and v, and gate and up
}

TEST(Fp8Tensor, exports_the_bytes_that_its_gemms_read) {
  expect_export_of_operands("recipe=fp8_linear", 14);
  expect_export_of_operands("recipe=coat", 14);
  expect_export_of_operands("recipe={base: fp8_linear, override: {'layers.0.*': bf16}}", 7);
}

}  // namespace
}  // namespace octet::train_tensor_export_test
