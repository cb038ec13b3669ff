// Blocks that a run with recipe fp8_block exports are the bytes that its GEMMs read.
#include <gtest/gtest.h>

#include <map>

#include "backends/cpu/backend.h"
#include "base/hash.h"
#include "cli/train/tiny_run.h"
#include "formats/bf16.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "io/model_files.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace octet::train_blocks_export_test {
namespace {

using test::ScratchFolder;

struct BlockWeight {
  uint64_t data = 0;          // hash of the E4M3 data
  std::vector<float> scales;  // in row-major order of the blocks
};

// The weights in blocks that a step makes of its parameters, by parameter.
std::map<std::string, BlockWeight> operands_of_a_step(Trainer& trainer) {
  std::map<std::string, BlockWeight> found;
  TrainEngine& engine = trainer.engine();
  engine.observe([&](const Plan& plan, const PlanStep& step, bool before) {
    const Node& node = plan.graph.node(step.node);
    if (before || node.op != OpCode::quantize_groups) return;
    const GraphInput* weight = plan.graph.input_of(node.in(QuantizeGroups::x));
    if (weight == nullptr || weight->kind != InputKind::parameter) return;
    BlockWeight& operand = found[weight->name];
    operand.scales.clear();  // the backward pass makes the same once more
    operand.data = xxh64(engine.arenas().read(plan, node.out(QuantizeGroups::q)));
    const Dtype dtype = plan.graph.type(node.out(QuantizeGroups::scale)).dtype;
    const auto bytes = engine.arenas().read(plan, node.out(QuantizeGroups::scale));
    const auto step_bytes = static_cast<size_t>(dtype_bytes(dtype));
    for (size_t i = 0; i < bytes.size(); i += step_bytes) {
      uint32_t bits = 0;
      std::memcpy(&bits, bytes.data() + i, step_bytes);
      operand.scales.push_back(dtype == Dtype::f32 ? float_of(bits)
                                                   : f32_from_bf16(static_cast<uint16_t>(bits)));
    }
  });
  trainer.step();
  engine.observe({});
  return found;
}

bool is_power(float scale) {
  int exponent = 0;
  return std::frexp(scale, &exponent) == 0.5f;
}

// The scales of one tensor that an export has, as f32.
std::vector<float> scales_in(const ModelFiles& exported, const std::string& name) {
  const auto bytes = exported.read(name);
  std::vector<float> scales(bytes.size() / sizeof(float));
  std::memcpy(scales.data(), bytes.data(), bytes.size());
  return scales;
}

// An export with one scale a tensor has its own, whatever the blocks of the run have.
void expect_own_scales(const ModelSource& run, const std::string& out,
                       const std::map<std::string, BlockWeight>& operands) {
  export_model(posix_files(), run, out, {.dtype = ExportDtype::fp8_tensor});
  const ModelFiles exported = ModelFiles::open(posix_files(), out);
  EXPECT_FALSE(std::ranges::all_of(operands, [&](const auto& operand) {
    return is_power(scales_in(exported, operand.first + "_scale").at(0));
  }));
}

void expect_export_of_operands(const char* kind, const char* recipe) {
  SCOPED_TRACE(fmt::format("{} {}", kind, recipe));
  const ScratchFolder folder;
  // Blocks at the right and lower edges are smaller.
  const RunConfig config = test::tiny_config(
      folder, {fmt::format("model={{kind: {}, hidden: 160, layers: 2, heads: 4, ffn: 300, vocab: "
                           "256, seq: 24}}",
                           kind),
               recipe, "train.steps=3", "train.save_every=3"});
  const cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  ModelSpec vocabulary;
  vocabulary.vocab = config.model.vocab;
  const Dataset data = open_run_data(posix_files(), config, vocabulary);
  Trainer trainer(config, data, {posix_files(), *backend.device, *backend.catalogue});
  trainer.run(StartMode::fresh, {});
  const auto operands = operands_of_a_step(trainer);  // of the weights that were saved
  EXPECT_EQ(operands.size(), 14u);

  const ModelSource run = find_model_source(posix_files(), folder / "run");
  expect_own_scales(run, folder / "tensors", operands);
  export_model(posix_files(), run, folder / "out", {.dtype = ExportDtype::fp8_block});
  const ModelFiles exported = ModelFiles::open(posix_files(), folder / "out");
  for (const auto& [name, operand] : operands) {
    EXPECT_EQ(exported.at(name).stored, SafeDtype::f8_e4m3) << name;
    EXPECT_EQ(xxh64(exported.read(name)), operand.data) << name;
    const std::vector<float> scales = scales_in(exported, name + "_scale_inv");
    EXPECT_EQ(scales, operand.scales) << name;
    const bool has_powers = std::string_view(recipe).find("power") != std::string_view::npos;
    EXPECT_EQ(std::ranges::all_of(scales, is_power), has_powers) << name;
  }
}

TEST(Fp8Block, exports_the_bytes_that_its_gemms_read) {
  for (const char* kind : {"llama", "olmo"}) {
    expect_export_of_operands(kind, "recipe=fp8_block");
    expect_export_of_operands(kind, "recipe={base: fp8_block, block_scale: power}");
  }
  expect_export_of_operands("llama", "recipe=coat-block");
}

}  // namespace
}  // namespace octet::train_blocks_export_test
