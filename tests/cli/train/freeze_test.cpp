// Runs that train a part of a model: what stays, what moves, and what becomes of it in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "cli/train/trainer_run.h"
#include "infer/model_source.h"
#include "io/checkpoint.h"
#include "unit/base/error_of.h"

namespace octet::train_freeze_test {
namespace {

using test::checkpoint_bytes;
using test::error_of;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::tiny_config;
using test::tiny_yaml;
using test::TinyRun;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFreeze = "train.freeze=[\"*embed_tokens*\", \"model.layers.0.*\"]";

bool is_to_stay(const std::string& name) {
  return name == "model.embed_tokens.weight" || name.starts_with("model.layers.0.");
}

std::vector<std::string> sets_and(std::vector<std::string> sets,
                                  const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

std::string weight_bytes(TinyRun& run, const std::string& name) {
  const Layout::Slot& slot = run.trainer.engine().layout().slots.at(name);
  std::string bytes(static_cast<size_t>(slot.type.n_bytes()), '\0');
  std::memcpy(bytes.data(), run.trainer.engine().arenas().arena(slot.arena) + slot.offset,
              bytes.size());
  return bytes;
}

std::map<std::string, std::string> weights_of(TinyRun& run) {
  std::map<std::string, std::string> weights;
  for (const ParameterSpec& p : model_parameters(run.trainer.spec()))
    weights[p.name] = weight_bytes(run, p.name);
  return weights;
}

class Frozen : public testing::TestWithParam<const char*> {};

TEST_P(Frozen, weights_keep_their_bytes_while_the_others_learn) {
  const ScratchFolder folder;
  TinyRun run(
      tiny_config(folder, {kFreeze, std::string("recipe=") + GetParam(), "train.steps=12"}));
  const auto before = weights_of(run);
  run.trainer.run(StartMode::fresh, {});
  for (const auto& [name, bytes] : weights_of(run))
    EXPECT_EQ(bytes == before.at(name), is_to_stay(name)) << name;
  const auto lines = test::metrics(folder / "run");
  EXPECT_LT(lines.back().at("loss"), 0.95 * lines.front().at("loss").get<double>());
}

TEST_P(Frozen, weights_are_in_checkpoints_and_have_no_states) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, {kFreeze, std::string("recipe=") + GetParam()}));
  run.trainer.run(StartMode::fresh, {});
  const auto newest = Checkpoints(posix_files(), folder / "run/ckpt").newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->model.tensors().size(), model_parameters(run.trainer.spec()).size());
  for (const auto& [name, bytes] : weights_of(run)) {
    const StoredTensor& tensor = newest->model.at(name);
    std::string stored(static_cast<size_t>(tensor.n_bytes()), '\0');
    newest->model.read(tensor, std::as_writable_bytes(std::span(stored)), 0);
    EXPECT_TRUE(stored == bytes) << name;
  }
  int n_moments = 0;
  for (const StoredTensor& tensor : newest->optim.tensors()) {
    const std::string owner = newest->manifest.uses.at(tensor.name).owner;
    n_moments += tensor.name.starts_with("adam_m:") ? 1 : 0;
    EXPECT_FALSE(is_to_stay(owner)) << tensor.name;
  }
  EXPECT_EQ(n_moments, 11);  // of the last layer, the last norm and the head
}

TEST_P(Frozen, runs_go_on_bit_for_bit) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {kFreeze, std::string("recipe=") + GetParam()};
  const auto config = [&](const std::string& out) {
    return tiny_config(folder, sets_and(sets, {"out=" + (folder / out)}));
  };
  const auto begin = [&](const std::string& out, const TrainHooks& more) {
    TinyRun run(config(out));
    run.fill("model.layers.0.input_layernorm.weight", 0.5F);  // as no seed draws it
    run.trainer.run(StartMode::fresh, more);
  };
  begin("whole", {});
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) { flag = report.step == 3 ? 15 : 0; };
  begin("parts", hooks);
  TinyRun(config("parts")).trainer.run(StartMode::resume, {});
  EXPECT_TRUE(checkpoint_bytes(folder / "parts", 6) == checkpoint_bytes(folder / "whole", 6));
  EXPECT_EQ(test::metrics(folder / "parts"), test::metrics(folder / "whole"));
}

INSTANTIATE_TEST_SUITE_P(recipes, Frozen,
                         testing::Values("fp32", "bf16", "fp16", "coat", "coat-fast", "coat-static",
                                         "fp8_block", "fp8_lm", "hif8", "scalify_fp8"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Without clipping, whose norm is over all that is trained.
TEST(Freezing, gives_what_is_trained_the_update_that_it_has_when_all_is) {
  const ScratchFolder folder;
  const std::vector<std::string> sets = {"optim.clip=0", "optim.warmup=0"};
  TinyRun all(tiny_config(folder, sets)), part(tiny_config(folder, sets_and(sets, {kFreeze})));
  EXPECT_EQ(all.trainer.step().loss, part.trainer.step().loss);
  const auto expected = weights_of(all);
  for (const auto& [name, bytes] : weights_of(part))
    EXPECT_EQ(bytes == expected.at(name), !is_to_stay(name)) << name;
}

TEST(Freezing, of_a_tied_embedding_is_of_the_head_too) {
  const ScratchFolder folder;
  TinyRun run(tiny_config(folder, {"model.tied=true", "train.freeze=[\"*embed_tokens*\"]"}));
  const auto before = weights_of(run);
  run.trainer.run(StartMode::fresh, {});
  for (const auto& [name, bytes] : weights_of(run))
    EXPECT_EQ(bytes == before.at(name), name == "model.embed_tokens.weight") << name;
}

TEST(Freezing, of_a_model_on_disk_keeps_its_numbers_in_every_export) {
  test::Fixture f;
  test::Tuner run(f.options, {"recipe=fp32", kFreeze, "train.steps=3", "train.export=f32",
                              "optim.lr=0.01", "model.seq=32"});
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const ModelSource source = find_model_source(posix_files(), f.folder / "run");
  const WeightReader base(posix_files(), f.options.model, source.spec);
  const WeightReader trained(posix_files(), source.weights, source.spec);
  const WeightReader exported(posix_files(), f.folder / "run/export", source.spec);
  for (const ParameterSpec& p : model_parameters(source.spec)) {
    EXPECT_EQ(trained.read(p.name) == base.read(p.name), is_to_stay(p.name)) << p.name;
    EXPECT_EQ(exported.read(p.name), trained.read(p.name)) << p.name;
  }
}

class FrozenRanks : public testing::Test {
 protected:
  void train(const std::string& out, const std::string& flags) {
    const Outcome outcome =
        run_program(folder_, "train --quiet --threads 2 " + config_ +
                                 " --set 'train.freeze=[\"*embed_tokens*\", \"model.layers.0.*\"]'"
                                 " --set out=" +
                                 (folder_ / out) + " " + flags);
    ASSERT_EQ(outcome.code, 0) << flags << ": " << outcome.err;
    const auto newest = Checkpoints(posix_files(), (folder_ / out) + "/ckpt").newest();
    ASSERT_TRUE(newest);
    EXPECT_EQ(newest->optim.find("adam_m:model.embed_tokens.weight"), nullptr);
    EXPECT_NE(newest->optim.find("adam_m:lm_head.weight"), nullptr);
  }
  const ScratchFolder folder_;
  const std::string config_ = folder_.put("tiny.yaml", tiny_yaml(folder_));
};

TEST_F(FrozenRanks, have_the_bits_of_one_that_accumulates) {
  const std::string strict = "--overwrite --set parallel.strict=true ";
  train("one", strict + "--set train.accumulate=2");
  for (const std::string stage : {"none", "optimizer", "gradients", "parameters"}) {
    train("two", strict + "--ranks 2 --set parallel.shard=" + stage);
    EXPECT_EQ(test::loss_bits(folder_ / "two"), test::loss_bits(folder_ / "one")) << stage;
    EXPECT_TRUE(checkpoint_bytes(folder_ / "two", 6) == checkpoint_bytes(folder_ / "one", 6))
        << stage;
  }
}

TEST_F(FrozenRanks, have_the_same_bits_at_every_stage) {
  for (const std::string recipe :
       {"bf16", "coat --set optim.master=bf16_sr", "coat-fast", "hif8"}) {
    for (const std::string stage : {"none", "optimizer", "gradients", "parameters"}) {
      train(stage,
            "--overwrite --ranks 2 --set parallel.shard=" + stage + " --set recipe=" + recipe);
      EXPECT_TRUE(checkpoint_bytes(folder_ / stage, 6) == checkpoint_bytes(folder_ / "none", 6))
          << recipe << " " << stage;
    }
  }
}

TEST_F(FrozenRanks, read_checkpoints_of_another_number) {
  const std::string strict = "--set parallel.strict=true --set optim.schedule=constant ";
  train("one", strict + "--set train.accumulate=2");
  train("parts", strict + "--ranks 2 --set train.steps=3");
  train("parts", strict + "--resume --set train.steps=6");
  EXPECT_TRUE(checkpoint_bytes(folder_ / "parts", 6) == checkpoint_bytes(folder_ / "one", 6));
}

TEST(Freezing, is_told_by_the_plan) {
  const ScratchFolder folder;
  const std::string plan = "plan " + folder.put("tiny.yaml", tiny_yaml(folder));
  EXPECT_THAT(run_program(folder, plan).out, Not(HasSubstr("frozen")));
  const Outcome head = run_program(folder, plan + " --set 'train.freeze=[lm_head.weight]'");
  EXPECT_THAT(head.out, HasSubstr("frozen 0.01 M parameters\n"));  // 256 x 32
}

TEST(Freezing, stays_what_it_was_when_a_run_goes_on) {
  const ScratchFolder folder;
  TinyRun(tiny_config(folder, {kFreeze})).trainer.run(StartMode::fresh, {});
  const auto resumed = [&](const std::string& sets) {
    return error_of([&] {
      TinyRun(tiny_config(folder, {sets, "train.steps=8"}))
          .trainer.run({StartMode::resume, {{"train.steps", "--set"}, {"train.freeze", "--set"}}},
                       {});
    });
  };
  EXPECT_THAT(resumed("train.freeze=[]"),
              HasSubstr("[resume] train.freeze: expected [\"*embed_tokens*\", "
                        "\"model.layers.0.*\"] as in the checkpoint, got []"));
  EXPECT_EQ(resumed(kFreeze), "no error");
}

TEST(Freezing, tells_what_is_amiss_with_its_patterns) {
  const ScratchFolder folder;
  const std::string train = "train --quiet " + folder.put("tiny.yaml", tiny_yaml(folder));
  const auto error = [&](const std::string& flags) {
    const Outcome outcome = run_program(folder, train + " --set " + flags);
    EXPECT_EQ(outcome.code, 2) << flags;
    return outcome.err;
  };
  EXPECT_THAT(error("'train.freeze=[\"vision.*\"]'"), HasSubstr("'vision.*', which matches none"));
  EXPECT_THAT(error("'train.freeze=[\"*\"]'"), HasSubstr("that leave a parameter to train"));
}

}  // namespace
}  // namespace octet::train_freeze_test
