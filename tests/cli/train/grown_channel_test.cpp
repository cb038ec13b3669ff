// A channel between two linears that grows while a run goes on: a recheck finds what saturates, and
// changes it to a scale that is measured there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "config/load.h"
#include "infer/model_spec.h"
#include "train/run.h"
#include "train/run_setup.h"
#include "train/weights.h"

namespace octet::train_grown_channel_test {
namespace {

using test::ScratchFolder;

constexpr int64_t kGrown = 11, kRecheck = 10, kSettled = 25, kChannel = 5;

// Rows of up_proj that are as many times as large, and columns of down_proj as many times as small:
// the function stays as it is.
void grow(TrainEngine& engine, float times) {
  const auto edit = [&](const std::string& name, auto&& change) {
    const Layout::Slot& slot = *engine.layout().find(StateUse::master, name);
    std::vector<float> values(static_cast<size_t>(slot.type.n_elems()));
    engine.arenas().device().copy_out(
        values.data(), engine.arenas().arena(slot.arena) + slot.offset, slot.type.n_bytes());
    change(values, slot.type.shape.back());
    write_master(engine.arenas(), engine.layout(), name, values);
  };
  edit("model.layers.0.mlp.up_proj.weight", [&](std::vector<float>& w, int64_t cols) {
    for (int64_t i = 0; i < cols; ++i) w[static_cast<size_t>(kChannel * cols + i)] *= times;
  });
  edit("model.layers.0.mlp.down_proj.weight", [&](std::vector<float>& w, int64_t cols) {
    for (size_t i = static_cast<size_t>(kChannel); i < w.size(); i += static_cast<size_t>(cols))
      w[i] /= times;
  });
  engine.prepare_state();
}

// Share of codes that saturate, by edge, of each step.
using Saturated = std::map<int64_t, std::map<std::string, double>>;

Saturated train(const std::string& recipe, std::string& told) {
  const ScratchFolder folder;
  folder.put("text.txt", test::easy_text(20000));
  const std::string yaml = fmt::format(
      "model: {{kind: llama, hidden: 32, layers: 2, heads: 2, ffn: 80, vocab: 256, seq: 32}}\n"
      "optim: {{lr: 1.0e-5, warmup: 2, master: fp32}}\n"
      "data: {{train: [{0}/text.txt], tokenizer: bytes}}\n"
      "train: {{steps: 36, batch: 4, eval_every: 0, save_every: 0, telemetry: 1, tensorboard: "
      "false}}\n"
      "out: {0}/run\nrecipe: {1}\n",
      folder.path(), recipe);
  const RunConfig config = parse_config(yaml, "grown.yaml").config;
  cpu::Backend backend = cpu::make_backend(2, cpu::detect_isa());
  const Dataset data =
      open_run_data(posix_files(), config, model_from_config(posix_files(), config));
  Saturated saturated;
  TrainEngine* engine = nullptr;
  TrainHooks hooks;
  hooks.on_trainer = [&](Trainer& trainer) { engine = &trainer.engine(); };
  hooks.log = Log([&](LogLevel level, const std::string& message) {
    if (level == LogLevel::warning) told += message + "\n";
  });
  hooks.before_step = [&](int64_t step) {
    if (step == kGrown) grow(*engine, 4096);
  };
  hooks.on_step = [&](const StepReport& report) {
    for (const EdgeStatistics& edge : report.edges)
      saturated[report.step][edge.edge] = edge.saturated;
  };
  Run(config, data, {posix_files(), *backend.device, *backend.catalogue}, StartMode::fresh, hooks)
      .to_end();
  return saturated;
}

class GrownChannel : public testing::TestWithParam<const char*> {};

TEST_P(GrownChannel, gets_a_measured_scale_within_one_interval) {
  std::string told;
  Saturated saturated = train(fmt::format("{{base: {}, recheck: {}}}", GetParam(), kRecheck), told);
  ASSERT_EQ(saturated.size(), 36u) << told;
  EXPECT_EQ(saturated[kGrown - 1]["layers.0.up_proj.w"], 0);
  EXPECT_GT(saturated[kGrown]["layers.0.up_proj.w"], 0);
  for (const auto& [edge, share] : saturated[kSettled]) {
    const bool is_forward = !edge.ends_with(".dy") && edge.starts_with("layers.");
    if (is_forward) {
      EXPECT_EQ(share, 0) << edge << "\n" << told;
    }
  }
  EXPECT_THAT(told, testing::HasSubstr("step 20: layers.0.up_proj.w: data of RMS 2^"));
  EXPECT_THAT(told, testing::Not(testing::HasSubstr("step 30: ")));
}

INSTANTIATE_TEST_SUITE_P(recipes, GrownChannel,
                         testing::Values("scalify_fp8", "coat-static",
                                         "coat-static, activation_scale: tensor"),
                         [](const auto& info) { return fmt::format("of_{}", info.index); });

}  // namespace
}  // namespace octet::train_grown_channel_test
