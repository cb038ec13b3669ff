// Fine-tuning without a configuration file, on tiny models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "config/report.h"
#include "config/table.h"
#include "data/text_samples.h"
#include "infer/export.h"
#include "infer/model_source.h"
#include "unit/base/error_of.h"

namespace octet::finetune_test {
namespace {

using test::error_of;
using test::Fixture;
using test::put_model;
using test::small_spec;
using test::StopAfter;
using test::Tuner;
using test::Tuning;
using testing::HasSubstr;

std::vector<int64_t> steps_of(const std::string& run) {
  std::vector<int64_t> steps;
  for (const auto& entry : Checkpoints(posix_files(), run + "/ckpt").list())
    steps.push_back(entry.step);
  return steps;
}

TEST(Finetune, settles_rows_and_length_on_the_data) {
  Fixture f;
  const Tuning tuning(f.options, {});
  const RunConfig& config = tuning.config();
  EXPECT_EQ(config.recipe.base, "bf16");
  EXPECT_EQ(config.optim.lr, 1e-5);
  EXPECT_TRUE(config.data.pack);
  EXPECT_EQ(config.data.document_boundaries, DocumentBoundaries::isolate);
  EXPECT_EQ(config.model.seq % 16, 0);
  EXPECT_LE(config.model.seq, 96);
  const auto report = find_pieces(tuning.data.train, row_options(config));
  EXPECT_EQ(report.n_too_long, 0);
  EXPECT_GT(report.longest - 1, config.model.seq - 16);  // no longer than it must be
  const auto loader = make_loader(tuning.data, config);
  const int64_t rows = loader.rows_of_epoch(0) + loader.rows_of_epoch(1) + loader.rows_of_epoch(2);
  const int64_t batch = config.train.batch;
  EXPECT_EQ(config.train.steps, (rows + batch - 1) / batch);
  EXPECT_EQ(config.optim.warmup, std::llround(0.03 * static_cast<double>(config.train.steps)));
  EXPECT_EQ(tuning.loaded.source.at("model.seq"), "derived");
}

TEST(Finetune, whatever_is_set_stays) {
  Fixture f;
  const Tuning tuning(f.options, {"model.seq=80", "train.epochs=2.5", "train.batch=3",
                                  "optim.lr=0.01", "recipe=fp32", "train.eval_every=7"});
  const RunConfig& config = tuning.config();
  EXPECT_EQ(config.model.seq, 80);
  EXPECT_EQ(config.train.batch, 3);
  EXPECT_EQ(config.optim.lr, 0.01);
  EXPECT_EQ(config.recipe.base, "fp32");
  EXPECT_EQ(config.train.eval_every, 7);
  const Tuning steps(f.options, {"train.steps=5"});
  EXPECT_EQ(steps.config().train.steps, 5);
  EXPECT_EQ(steps.config().train.epochs, 0);
  EXPECT_THAT(error_of([&] {
                Tuning(f.options, {"train.steps=5", "train.epochs=2"});
              }),
              HasSubstr("train.steps"));
}

TEST(Finetune, adapters_take_larger_steps) {
  Fixture f;
  EXPECT_EQ(Tuning(f.options, {"lora.rank=4"}).config().optim.lr, 2e-4);
  EXPECT_EQ(Tuning(f.options, {"lora.rank=4", "optim.lr=1e-3"}).config().optim.lr, 1e-3);
}

TEST(Finetune, the_stored_configuration_says_the_same_again) {
  Fixture f;
  const Tuning tuning(f.options, {});
  const RunConfig again = parse_config(resolved_yaml(tuning.config()), "config.yaml").config;
  EXPECT_EQ(again.train, tuning.config().train);
  EXPECT_EQ(again.optim, tuning.config().optim);
  EXPECT_EQ(again.data, tuning.config().data);
  EXPECT_EQ(again.model.seq, tuning.config().model.seq);
}

TEST(Finetune, text_is_cut_into_windows_that_keep_documents_apart) {
  Fixture f;
  f.options.data = {f.folder.put("t.txt", test::easy_text(5000))};
  const Tuning tuning(f.options, {});
  EXPECT_FALSE(tuning.config().data.pack);
  EXPECT_EQ(tuning.config().data.chat.chat_template, "none");
  EXPECT_EQ(tuning.config().model.seq, 96);  // the model's limit
}

TEST(Finetune, faults_are_one_line_each) {
  Fixture f;
  const auto with = [&](const std::string& model, const std::string& data) {
    return error_of([&] { Tuning({.model = model, .data = {data}, .out = f.folder / "run"}, {}); });
  };
  const std::string talks = f.options.data.front(), model = f.options.model;
  EXPECT_THAT(with(f.folder / "none", talks), HasSubstr("none"));
  EXPECT_THAT(with(model, f.folder / "no.jsonl"), HasSubstr("no.jsonl"));
  ModelSpec wide = small_spec();
  wide.vocab = 300;
  EXPECT_THAT(with(put_model(f.folder, wide, "wide"), talks), HasSubstr("tokenizer"));
  for (const std::string& error :
       {with(f.folder / "none", talks), with(model, f.folder / "no.jsonl")})
    EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(Finetune, a_resumed_run_goes_on_bit_for_bit) {
  Fixture f;
  const std::vector<std::string> sets = {"optim.lr=0.002", "train.epochs=2"};
  f.options.out = f.folder / "whole";
  Tuner whole(f.options, sets);
  const TrainResult all = whole.trainer.run({StartMode::fresh, whole.loaded.source}, {});
  f.options.out = f.folder / "parts";
  StopAfter stop(all.step / 2);
  {
    Tuner first(f.options, sets);
    first.trainer.run({StartMode::fresh, first.loaded.source}, stop.hooks);
  }
  Tuner second(f.options, sets);
  const TrainResult resumed = second.trainer.run({StartMode::resume, second.loaded.source}, {});
  EXPECT_EQ(resumed.step, all.step);
  EXPECT_EQ(resumed.best_step, all.best_step);
  EXPECT_EQ(test::metrics(f.folder / "parts"), test::metrics(f.folder / "whole"));
  EXPECT_EQ(steps_of(f.folder / "parts"), steps_of(f.folder / "whole"));
  for (const char* name : {"model.safetensors", "config.json", "octet_export.json"}) {
    const std::string file = std::string("/export/") + name;
    EXPECT_TRUE(posix_files().read_bytes((f.folder / "parts") + file) ==
                posix_files().read_bytes((f.folder / "whole") + file))
        << name;
  }
}

TEST(Finetune, a_run_may_be_given_more_epochs) {
  Fixture f;
  std::vector<std::string> sets = {"train.epochs=1", "optim.warmup_share=0.5"};
  int64_t warmup = 0;
  {
    Tuner first(f.options, sets);
    warmup = first.config().optim.warmup;
    first.trainer.run({StartMode::fresh, first.loaded.source}, {});
  }
  sets[0] = "train.epochs=2";
  Tuner second(f.options, sets);
  EXPECT_GT(second.config().optim.warmup, warmup);
  const TrainResult result = second.trainer.run({StartMode::resume, second.loaded.source}, {});
  EXPECT_EQ(result.step, second.config().train.steps);
  const RunConfig stored = load_config(f.folder / "run/config.yaml").config;
  EXPECT_EQ(stored.optim.warmup, warmup);  // the rise is over
  EXPECT_EQ(stored.train.epochs, 2);
}

// The default is a share of the steps.
TEST(Finetune, a_warmup_of_the_command_line_is_taken) {
  Fixture f;
  const Tuner run(f.options, {"train.steps=12", "optim.warmup=5"});
  EXPECT_EQ(run.config().optim.warmup, 5);
  EXPECT_EQ(run.config().optim.warmup_share, 0);
  EXPECT_THAT(error_of([&] {
                Tuner(f.options, {"optim.warmup=5", "optim.warmup_share=0.1"});
              }),
              HasSubstr("optim.warmup: expected no number of steps beside optim.warmup_share"));
}

TEST(Finetune, the_best_checkpoint_outlasts_newer_ones_and_is_exported) {
  Fixture f;
  // Far too large steps after good ones: the loss rises again.
  Tuner run(f.options,
            {"optim.lr=10", "optim.schedule=linear", "optim.warmup_share=1", "train.steps=12",
             "train.eval_every=1", "train.save_every=2", "train.patience=0", "optim.clip=0"});
  const TrainResult result = run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  ASSERT_GT(result.best_step, 0);
  ASSERT_LT(result.best_step, 11);
  EXPECT_EQ(steps_of(f.folder / "run"), (std::vector<int64_t>{result.best_step, 12}));
  const Json note = Json::parse(posix_files().read_text(f.folder / "run/export/octet_export.json"));
  EXPECT_EQ(note["step"], result.best_step);
  double lowest = 1e9;
  int64_t at = 0;
  for (const auto& line : test::metrics(f.folder / "run")) {
    if (line["val_loss"] < lowest) lowest = line["val_loss"], at = line["step"];
  }
  EXPECT_EQ(at, result.best_step);
}

TEST(Finetune, ends_early_where_the_validation_loss_falls_no_more) {
  Fixture f;
  const std::vector<std::string> sets = {"optim.lr=0.3",       "optim.warmup_share=0",
                                         "optim.clip=0",       "train.steps=40",
                                         "train.eval_every=1", "train.patience=3"};
  Tuner run(f.options, sets);
  const TrainResult result = run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  EXPECT_LT(result.step, 40);
  EXPECT_EQ(result.step, result.best_step + 3);
  // It is over: a resumed run does nothing more.
  Tuner again(f.options, sets);
  EXPECT_EQ(again.trainer.run({StartMode::resume, again.loaded.source}, {}).step, result.step);
}

TEST(Finetune, no_folder_that_a_run_did_not_write_is_replaced) {
  Fixture f;
  f.folder.put("run/export/mine.txt", "mine");
  Tuner run(f.options, {"train.steps=2"});
  EXPECT_THAT(error_of([&] {
                run.trainer.run({StartMode::fresh, run.loaded.source}, {});
              }),
              HasSubstr("train.export"));
  EXPECT_EQ(posix_files().read_text(f.folder / "run/export/mine.txt"), "mine");
}

TEST(Finetune, an_overwritten_run_leaves_no_export_of_the_old_one) {
  Fixture f;
  const std::vector<std::string> sets = {"train.steps=2"};
  {
    Tuner run(f.options, sets);
    run.trainer.run({StartMode::fresh, run.loaded.source}, {});
    EXPECT_TRUE(posix_files().exists(f.folder / "run/export/config.json"));
  }
  Tuner run(f.options, {"train.steps=2", "train.export=none"});
  run.trainer.run({StartMode::overwrite, run.loaded.source}, {});
  EXPECT_FALSE(posix_files().exists(f.folder / "run/export"));
}

TEST(Finetune, exports_have_the_names_of_convert) {
  std::vector<std::string> expected = {"none"};
  for (int i = 0; i < enum_count(ExportDtype{}); ++i) {
    const auto dtype = static_cast<ExportDtype>(i);
    // as_base is of convert alone: the folder that a run began with may be gone when it ends.
    if (dtype != ExportDtype::as_base) expected.emplace_back(enum_name(dtype));
  }
  expected.emplace_back("adapter");
  EXPECT_EQ(row_names(*find_config_row("train.export")), expected);
}

}  // namespace
}  // namespace octet::finetune_test
