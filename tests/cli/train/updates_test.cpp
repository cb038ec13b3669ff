// Counts of an update, and what never changes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "cli/finetune/small_model.h"
#include "cli/train/trainer_run.h"

namespace octet::train_updates_test {
namespace {

using test::checkpoint_bytes;
using test::ScratchFolder;
using test::TinyRun;

constexpr const char* kEmbedding = "model.embed_tokens.weight";

// A model whose embedding of `x` is so small that FP16 overflows in its gradient alone.
std::string put_sensitive_model(const ScratchFolder& folder) {
  ModelSpec spec;
  spec.kind = ModelKind::llama;
  spec.hidden = 8, spec.layers = 1, spec.heads = 2, spec.ffn = 16, spec.vocab = 256;
  spec.max_positions = 64, spec.norm_eps = 1e-30;
  return test::put_model(folder, resolved(spec), "sensitive",
                         [](const std::string& name, std::vector<float>& values) {
                           if (name == "model.layers.0.self_attn.v_proj.weight" ||
                               name == "model.layers.0.self_attn.o_proj.weight") {
                             for (float& value : values) value *= 8;
                           }
                           if (name != kEmbedding) return;
                           for (size_t i = 0; i < 8; ++i)
                             values['x' * 8 + i] = i % 2 == 0 ? 6e-8f : -6e-8f;
                         });
}

// One window a step; those of steps 3 and 6 hold an `x`.
RunConfig sensitive_config(const ScratchFolder& folder, const std::string& out,
                           const std::vector<std::string>& sets) {
  const std::string data = folder.put(
      "x.txt", "abcdefghabcdefghabcxefghabcdefghabcdefghabcdexghabcdefghabcdefghabcdefgha");
  const std::string yaml =
      "model: {path: " + put_sensitive_model(folder) +
      ", seq: 8}\n"
      "recipe: fp16\n"
      "optim: {lr: 1.0e-3, warmup: 0, schedule: constant, weight_decay: 0, clip: 0, "
      "state_m: f32, state_v: f32, master: fp32}\n"
      "data: {train: [" +
      data + "], val_fraction: 0, sampling: sequential}\n" +
      "train: {steps: 9, batch: 1, eval_every: 0, save_every: 0}\n"
      "out: " +
      (folder / out) + "\n";
  return parse_config(yaml, "sensitive.yaml", sets).config;
}

// By how much of itself the step's update of a tensor differs from AdamW's with this t.
double difference_with(TinyRun& run, const std::string& tensor, const std::vector<float>& before,
                       int t) {
  const auto after = run.values("master:" + tensor), m = run.values("adam_m:" + tensor),
             v = run.values("adam_v:" + tensor);
  double difference = 0, size = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const double c1 = 1 - std::pow(0.9, t), c2 = 1 - std::pow(0.95, t);
    const double update = 1e-3 * (m[i] / c1) / (std::sqrt(v[i] / c2) + 1e-8);
    difference += std::abs(static_cast<double>(before[i]) - after[i] - update);
    size += std::abs(update);
  }
  return difference / size;
}

TEST(Updates, without_clipping_each_tensor_has_the_t_of_its_own_updates) {
  const ScratchFolder folder;
  TinyRun run(sensitive_config(folder, "run", {}));
  int t_embedding = 0;
  for (int step = 1; step <= 9; ++step) {
    const auto head = run.values("master:lm_head.weight"),
               embedding = run.values("master:" + std::string(kEmbedding));
    const StepReport report = run.trainer.step();
    const bool is_refused = step == 3 || step == 6;
    EXPECT_FALSE(report.skipped) << step;
    EXPECT_EQ(report.skipped_tensors,
              is_refused ? std::vector<std::string>{kEmbedding} : std::vector<std::string>{})
        << step;
    EXPECT_LT(difference_with(run, "lm_head.weight", head, step), 1e-3) << step;
    if (is_refused) continue;
    ++t_embedding;
    EXPECT_LT(difference_with(run, kEmbedding, embedding, t_embedding), 1e-3) << step;
  }
}

TEST(Updates, that_tensors_missed_are_counted_across_a_resume) {
  const ScratchFolder folder;
  TinyRun(sensitive_config(folder, "whole", {})).trainer.run(StartMode::fresh, {});
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) { flag = report.step == 4 ? 15 : 0; };
  TinyRun(sensitive_config(folder, "parts", {})).trainer.run(StartMode::fresh, hooks);
  TinyRun(sensitive_config(folder, "parts", {})).trainer.run(StartMode::resume, {});
  EXPECT_TRUE(checkpoint_bytes(folder / "parts", 9) == checkpoint_bytes(folder / "whole", 9));
  const auto lines = test::metrics(folder / "parts");
  EXPECT_EQ(lines, test::metrics(folder / "whole"));
  EXPECT_EQ(lines.at(2).at("skipped"), 0);
  EXPECT_EQ(lines.at(2).at("refused"), nlohmann::json::array({kEmbedding}));
  EXPECT_FALSE(lines.at(3).contains("refused"));
}

// The label `c` has a logit of -Inf in FP16: the loss is Inf, and every gradient is finite.
void spoil_loss(TinyRun& run) {
  run.fill("model.layers.0.self_attn.o_proj.weight", 0);
  run.fill("model.layers.0.mlp.down_proj.weight", 0);
  std::vector<float> embedding = run.values("master:" + std::string(kEmbedding));
  for (float& value : embedding) value = 1;
  auto& engine = run.trainer.engine();
  write_master(engine.arenas(), engine.layout(), kEmbedding, embedding);
  std::vector<float> head = run.values("master:lm_head.weight");
  for (size_t i = 0; i < 8; ++i) head['c' * 8 + i] = -60000;
  write_master(engine.arenas(), engine.layout(), "lm_head.weight", head);
}

using Values = std::map<std::string, std::vector<float>>;

Values values_after(const RunConfig& config, int n_steps, bool spoils) {
  TinyRun run(config);
  if (spoils) spoil_loss(run);
  for (int step = 1; step <= n_steps; ++step) {
    const StepReport report = run.trainer.step();
    if (spoils && step == 1) {
      EXPECT_TRUE(std::isinf(report.loss));
      EXPECT_TRUE(std::isfinite(report.grad_norm));
      EXPECT_FALSE(report.skipped);
    }
    const bool is_bad = !std::isfinite(report.loss) || !report.skipped_tensors.empty();
    EXPECT_EQ(report.site.has_value(), config.train.debug_nonfinite && is_bad) << step;
  }
  Values values;
  for (const auto& [name, slot] : run.trainer.engine().layout().slots) {
    if (slot.type.dtype == Dtype::f32 && slot.arena == Arena::persistent)
      values[name] = run.values(name);
  }
  return values;
}

TEST(Updates, are_made_once_where_tracing_finds_a_loss_that_is_infinite) {
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"optim.clip=1"}, {"optim.clip=0"}, {"train.accumulate=2"}}) {
    const ScratchFolder folder;
    std::vector<std::string> traced = sets;
    traced.emplace_back("train.debug_nonfinite=true");
    const Values without = values_after(sensitive_config(folder, "run", sets), 2, true);
    EXPECT_EQ(values_after(sensitive_config(folder, "run", traced), 2, true), without) << sets[0];
  }
}

TEST(Updates, of_single_tensors_are_left_out_alike_with_tracing) {
  const ScratchFolder folder;
  const Values without = values_after(sensitive_config(folder, "run", {}), 7, false);
  const RunConfig traced = sensitive_config(folder, "run", {"train.debug_nonfinite=true"});
  EXPECT_EQ(values_after(traced, 7, false), without);
}

}  // namespace
}  // namespace octet::train_updates_test
