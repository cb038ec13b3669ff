// The trainer with the CPU back end, on tiny models.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "backends/cpu/backend.h"
#include "cli/train/tiny_run.h"
#include "train/run_setup.h"
#include "unit/base/error_of.h"

namespace octet::trainer_test {
namespace {

using test::error_of;
using test::metrics;
using test::ScratchFolder;
using test::tiny_config;

// A trainer and all that it needs.
struct Session {
  Session(const RunConfig& config, cpu::Isa isa = cpu::detect_isa(), int n_threads = 2)
      : backend(cpu::make_backend(n_threads, isa)),
        data(open_run_data(posix_files(), config, model_from(config))),
        trainer(config, data, {posix_files(), *backend.device, *backend.catalogue}) {}

  static ModelSpec model_from(const RunConfig& config) {
    ModelSpec spec;
    spec.vocab = config.model.vocab;
    return spec;
  }

  cpu::Backend backend;
  Dataset data;
  Trainer trainer;
};

struct Case {
  std::string kind, recipe, isa;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.kind << " " << c.recipe << " " << c.isa;
}

class Learning : public testing::TestWithParam<Case> {};

TEST_P(Learning, loss_falls_on_easy_text) {
  const ScratchFolder folder;
  const RunConfig config = tiny_config(
      folder, {"model.kind=" + GetParam().kind, "recipe=" + GetParam().recipe, "train.steps=12"});
  Session run(config, GetParam().isa == "scalar" ? cpu::Isa::scalar : cpu::detect_isa());
  const double before = run.trainer.evaluate().value();
  EXPECT_NEAR(before, std::log(256), 0.1);
  const float first = run.trainer.step().loss;
  EXPECT_NEAR(first, std::log(256), 0.1);
  StepReport report;
  for (int i = 0; i < 11; ++i) report = run.trainer.step();
  EXPECT_LT(report.loss, first - 0.8F);
  EXPECT_LT(run.trainer.evaluate().value(), before - 0.8);
}

INSTANTIATE_TEST_SUITE_P(
    models, Learning,
    testing::Values(Case{"llama", "fp32", "scalar"}, Case{"llama", "bf16", "scalar"},
                    Case{"llama", "fp32", "auto"}, Case{"llama", "bf16", "auto"},
                    Case{"olmo", "fp32", "scalar"}, Case{"olmo", "bf16", "auto"},
                    Case{"gpt2", "fp32", "scalar"}, Case{"gpt2", "bf16", "auto"}),
    [](const auto& info) {
      return info.param.kind + "_" + info.param.recipe + "_" + info.param.isa;
    });

// Stops a run after `step`, as a signal would.
TrainHooks stop_after(int64_t step, std::atomic<int>& flag) {
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [step, &flag](const StepReport& report) {
    if (report.step == step) flag = 15;
  };
  return hooks;
}

class Resume : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Resume, continues_bit_for_bit) {
  const ScratchFolder folder;
  std::vector<std::string> sets = GetParam();
  sets.push_back("out=" + (folder / "whole"));
  Session(tiny_config(folder, sets)).trainer.run(StartMode::fresh, {});

  sets.back() = "out=" + (folder / "parts");
  std::atomic<int> flag = 0;
  const TrainResult stopped =
      Session(tiny_config(folder, sets)).trainer.run(StartMode::fresh, stop_after(3, flag));
  EXPECT_EQ(stopped.signal, 15);
  EXPECT_EQ(stopped.step, 3);
  const TrainResult finished =
      Session(tiny_config(folder, sets)).trainer.run(StartMode::resume, {});
  EXPECT_EQ(finished.signal, 0);
  EXPECT_EQ(finished.step, 6);

  EXPECT_EQ(metrics(folder / "parts"), metrics(folder / "whole"));
  EXPECT_EQ(metrics(folder / "whole").size(), 6u);
  for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"}) {
    const std::string end = std::string("/ckpt/step-000006/") + name;
    EXPECT_TRUE(posix_files().read_bytes((folder / "parts") + end) ==
                posix_files().read_bytes((folder / "whole") + end))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    settings, Resume,
    testing::Values(std::vector<std::string>{"recipe=fp32"},
                    std::vector<std::string>{"recipe=bf16", "data.sampling=random"},
                    std::vector<std::string>{"recipe=bf16", "train.accumulate=3"},
                    std::vector<std::string>{"recipe=bf16", "optim.master=fp32",
                                             "data.sampling=sequential", "train.batch=33"},
                    std::vector<std::string>{"recipe=bf16", "optim.state_m=e4m3+x",
                                             "optim.state_v=de8", "optim.master=bf16_sr"},
                    std::vector<std::string>{"recipe=fp32", "train.accumulate=5",
                                             "optim.clip=0.05"},
                    std::vector<std::string>{"recipe={base: hif8, compute: fp16, scaling: periodic,"
                                             " loss_scaling: adaptive, gradient_rounding: hr}",
                                             "train.accumulate=2"},
                    std::vector<std::string>{"recipe={base: hif8, gradient_rounding: sr}",
                                             "train.accumulate=2"},
                    std::vector<std::string>{"recipe={base: fp8_linear, gradient_rounding: sr}"},
                    std::vector<std::string>{"recipe={base: hif8, scaling: none, activations: hif8,"
                                             " loss_scaling: global, loss_scale: 65536}",
                                             "optim.state_m=hif8+x"},
                    std::vector<std::string>{"recipe={base: fp16, loss_scaling: adaptive}"},
                    std::vector<std::string>{"recipe=mxfp8"}));

// The first 11 or so scales are too large for FP16: more steps than may be skipped in a row.
TEST(Trainer, steps_left_out_for_the_loss_scale_end_no_run) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {
      "recipe={base: fp16, loss_scaling: global, loss_scale: 4294967296}", "train.steps=30",
      "train.max_nonfinite_steps=3"};
  Session(tiny_config(folder, sets)).trainer.run(StartMode::fresh, {});
  int n_overflows = 0;
  double scale = 4294967296;
  for (const auto& line : metrics(folder / "run")) {
    EXPECT_EQ(line.at("skipped"), 0);
    EXPECT_EQ(line.at("loss_scale"), scale);
    if (line.at("overflowed") == 0) continue;
    ++n_overflows;
    scale /= 2;
  }
  EXPECT_GT(n_overflows, 3);
  EXPECT_LT(n_overflows, 25);
  EXPECT_LT(metrics(folder / "run").back().at("loss"), 5.0);
}

// A loss that is not finite is no matter of the scale.
TEST(Trainer, a_loss_that_is_not_finite_ends_a_run_with_loss_scaling_too) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {"recipe={base: fp16, loss_scaling: adaptive}",
                                         "optim.lr=999",
                                         "optim.warmup=0",
                                         "optim.clip=0",
                                         "train.steps=60",
                                         "train.max_nonfinite_steps=3"};
  const std::string error =
      error_of([&] { Session(tiny_config(folder, sets)).trainer.run(StartMode::fresh, {}); });
  EXPECT_NE(error.find("expected a finite loss and gradient"), std::string::npos) << error;
}

TEST(Trainer, lost_tail_of_metrics_is_written_again) {
  const ScratchFolder folder;
  Session(tiny_config(folder, {"out=" + (folder / "whole")})).trainer.run(StartMode::fresh, {});
  std::atomic<int> flag = 0;
  Session(tiny_config(folder)).trainer.run(StartMode::fresh, stop_after(3, flag));
  // Metrics as a kill leaves them: steps after the checkpoint, the last line cut short.
  std::string text = posix_files().read_text(folder / "run/metrics.jsonl");
  folder.put("run/metrics.jsonl", text + "{\"step\":4,\"loss\":9}\n{\"step\":5,\"lo");
  Session(tiny_config(folder)).trainer.run(StartMode::resume, {});
  EXPECT_EQ(metrics(folder / "run"), metrics(folder / "whole"));
}

TEST(Trainer, bits_do_not_depend_on_the_number_of_threads) {
  const ScratchFolder folder;
  std::vector<std::string> bits;
  for (const int n_threads : {1, 2, 3, 5}) {
    const std::string out = folder / fmt::format("threads-{}", n_threads);
    const RunConfig config = tiny_config(folder, {"recipe=bf16", "out=" + out});
    Session(config, cpu::detect_isa(), n_threads).trainer.run(StartMode::fresh, {});
    nlohmann::json last = metrics(out).back();
    last.erase("mem_bytes");  // scratch is per thread
    bits.push_back(last.dump());
  }
  EXPECT_THAT(bits, testing::Each(bits.front()));
}

TEST(Trainer, accumulation_of_split_batches_gives_the_loss_of_the_whole) {
  const ScratchFolder folder;
  Session whole(tiny_config(folder, {"train.batch=6", "data.sampling=sequential"}));
  Session split(
      tiny_config(folder, {"train.batch=2", "train.accumulate=3", "data.sampling=sequential"}));
  for (int i = 0; i < 4; ++i) {
    const StepReport a = whole.trainer.step(), b = split.trainer.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-5F * a.loss);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4F * a.grad_norm);
    EXPECT_EQ(a.tokens, b.tokens);
  }
}

TEST(Trainer, started_from_a_folder_it_begins_where_the_run_ended) {
  const ScratchFolder folder;
  const TrainResult end = Session(tiny_config(folder)).trainer.run(StartMode::fresh, {});
  const std::string model = folder / "run/ckpt/step-000006";
  folder.put("run/ckpt/step-000006/config.json",
             posix_files().read_text(folder / "run/config.json"));
  RunConfig config = tiny_config(folder, {"out=" + (folder / "next")});
  config.model.path = model;
  Session next(config);
  EXPECT_EQ(next.trainer.evaluate(), end.val_loss);
  next.trainer.run(StartMode::fresh, {});
  EXPECT_LT(metrics(folder / "next").front().at("loss").get<double>(), 5.2);
}

TEST(Trainer, a_run_without_end_of_nan_stops_and_leaves_the_weights) {
  const ScratchFolder folder;
  Session(tiny_config(folder, {"train.steps=2"})).trainer.run(StartMode::fresh, {});
  std::string weights = posix_files().read_text(folder / "run/ckpt/step-000002/model.safetensors");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(weights.data() + weights.size() - 4, &nan, 4);
  folder.put("nan/model.safetensors", weights);
  folder.put("nan/config.json", posix_files().read_text(folder / "run/config.json"));

  RunConfig config = tiny_config(folder, {"train.max_nonfinite_steps=3", "out=" + (folder / "b")});
  config.model.path = folder / "nan";
  config.model.allow_nonfinite = true;
  Session run(config);
  const std::string message = error_of([&] { run.trainer.run(StartMode::fresh, {}); });
  EXPECT_THAT(message, testing::StartsWith("[train] expected a finite loss and gradient, got loss "
                                           "nan"));
  EXPECT_THAT(message, testing::HasSubstr("at step 3, the last of 3 such steps"));
  const auto lines = metrics(folder / "b");
  ASSERT_EQ(lines.size(), 3u);
  for (const auto& line : lines) EXPECT_EQ(line.at("skipped"), 1);
}

TEST(Trainer, a_signal_while_the_state_is_saved_needs_no_other_step) {
  const ScratchFolder folder;
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.log = Log([&](LogLevel, const std::string& message) {
    if (message.starts_with("saved step 2")) flag = 15;
  });
  const TrainResult result =
      Session(tiny_config(folder, {"train.save_every=2", "train.async_save=false"}))
          .trainer.run(StartMode::fresh, hooks);
  EXPECT_EQ(result.signal, 15);
  EXPECT_EQ(result.step, 2);
}

TEST(Trainer, refuses_to_overwrite_a_run) {
  const ScratchFolder folder;
  Session(tiny_config(folder)).trainer.run(StartMode::fresh, {});
  Session again(tiny_config(folder));
  EXPECT_EQ(
      error_of([&] { again.trainer.run(StartMode::fresh, {}); }, folder.path()),
      "out: expected a folder without a run, got DIR/run/ckpt/step-000006 (go on with --resume, "
      "begin anew with --overwrite, or choose another folder)");
}

TEST(Trainer, resume_names_what_changed) {
  const ScratchFolder folder;
  std::atomic<int> flag = 0;
  Session(tiny_config(folder)).trainer.run(StartMode::fresh, stop_after(2, flag));
  const auto error_with = [&](const std::string& set) {
    Session run(tiny_config(folder, {set}));
    return error_of([&] { run.trainer.run(StartMode::resume, {}); }, folder.path());
  };
  EXPECT_EQ(error_with("recipe=bf16"),
            "[resume] recipe.base: expected fp32 as in the checkpoint, got bf16");
  EXPECT_EQ(error_with("train.seed=7"),
            "[resume] train.seed: expected 1 as in the checkpoint, got 7");
  EXPECT_EQ(error_with("model.ffn=48"),
            "[resume] model.ffn: expected 40 as in the checkpoint, got 48");
  EXPECT_EQ(error_with("optim.eps=1e-6"),
            "[resume] optim.eps: expected 1e-08 as in the checkpoint, got 1e-06 (--set "
            "optim.eps=1e-06 changes it)");
}

TEST(Trainer, keeps_the_newest_checkpoints) {
  const ScratchFolder folder;
  Session(tiny_config(folder, {"train.save_every=1", "train.keep=2"}))
      .trainer.run(StartMode::fresh, {});
  std::vector<int64_t> steps;
  for (const auto& entry : Checkpoints(posix_files(), folder / "run/ckpt").list()) {
    if (entry.is_whole()) steps.push_back(entry.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{5, 6}));
}

}  // namespace
}  // namespace octet::trainer_test
