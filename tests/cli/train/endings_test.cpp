// Runs that learn nothing, or end in what is not finite, do not end like good ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/finetune/small_model.h"
#include "cli/program_run.h"
#include "cli/train/trainer_run.h"
#include "unit/base/error_of.h"

namespace octet::train_endings_test {
namespace {

using test::easy_text;
using test::metrics;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::tiny_config;
using test::tiny_yaml;
using test::TinyRun;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

class Endings : public testing::Test {
 protected:
  Outcome train(const std::string& flags) {
    return run_program(folder_, "train --quiet " + config_ + " " + flags);
  }
  bool exists(const std::string& path) const { return posix_files().exists(folder_ / path); }

  const ScratchFolder folder_;
  const std::string config_ = folder_.put("tiny.yaml", tiny_yaml(folder_));
  const std::string diverging_ =
      "--set optim.lr=1000 --set optim.weight_decay=1000 --set optim.warmup=0 --set "
      "train.steps=9 --set train.eval_every=1 --set train.patience=3 --set train.export=bf16";
};

TEST_F(Endings, in_nan_are_errors_without_an_export) {
  const Outcome run = train(diverging_);
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("octet: [train] expected a run that ends with a finite loss"));
  EXPECT_THAT(run.err, HasSubstr("validation loss nan; nothing is exported"));
  EXPECT_FALSE(exists("run/export"));
  const Outcome again = train(diverging_ + " --resume");
  EXPECT_EQ(again.code, 4) << again.err;
  EXPECT_EQ(again.err, run.err);
  EXPECT_FALSE(exists("run/export"));
  const Outcome eval = run_program(folder_, "eval --quiet --model " + (folder_ / "run"));
  EXPECT_EQ(eval.code, 4) << eval.err;
  EXPECT_THAT(eval.out, HasSubstr(" nan"));
  EXPECT_THAT(eval.err, HasSubstr("octet: [eval] expected a finite log-likelihood"));
  const Outcome report =
      run_program(folder_, "report " + (folder_ / "run") + " --out " + (folder_ / "page.html"));
  for (const Outcome& outcome : {run, again, eval, report}) {
    EXPECT_THAT(outcome.out + outcome.err, Not(HasSubstr("-nan")));
  }
}

TEST_F(Endings, in_nan_without_patience_are_errors_too) {
  const Outcome run = train(
      "--set optim.lr=1000 --set optim.weight_decay=1000 --set optim.warmup=0 --set "
      "train.eval_every=0");
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.err, Not(HasSubstr("export")));
}

TEST_F(Endings, in_nan_export_the_best_checkpoint_where_one_was_finite) {
  const std::string best = " --set train.keep_best=true --set train.eval_every=1";
  ASSERT_EQ(train("--set train.steps=2" + best).code, 0);
  const Outcome run = train(diverging_ + best + " --resume");
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("; the export is of step 2, which had the lowest validation"));
  const auto note =
      nlohmann::json::parse(posix_files().read_text(folder_ / "run/export/octet_export.json"));
  EXPECT_EQ(note.at("step"), 2);
  EXPECT_THAT(run.err, EndsWith(train(diverging_ + best + " --resume").err));
}

// Documents of one byte, each without a label.
std::string bytes_alone(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += std::string(i == 0 ? "" : "\n\n") + char('a' + i % 26);
  return text;
}

std::string of_documents(const std::string& data) {
  return " --set 'data.train=[" + data +
         "]' --set 'data.document_separator=\"\\n\\n\"' --set data.document_boundaries=mask_labels "
         "--set data.sampling=sequential --set data.val_fraction=0 ";
}

TEST_F(Endings, without_a_label_are_errors_of_the_data) {
  const std::string set = of_documents(folder_.put("one.txt", bytes_alone(2000)));
  for (const char* steps : {"3", "30"}) {
    const Outcome run =
        train(set + "--overwrite --set train.export=bf16 --set train.steps=" + steps);
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_THAT(run.err, HasSubstr("octet: [data] expected labels to train on, got none in " +
                                   std::string(steps[1] == '\0' ? "3" : "20") + " steps"));
    EXPECT_FALSE(exists("run/export"));
  }
  const Outcome inspect = run_program(folder_, "data inspect " + config_ + set + "--n 0");
  EXPECT_THAT(inspect.out, HasSubstr("labels         0 an epoch, of 2000 tokens\n"));
}

TEST_F(Endings, leave_steps_without_labels_out_of_averages) {
  const std::string data = folder_.put("half.txt", bytes_alone(240) + "\n\n" + easy_text(1000));
  const std::string set = of_documents(data) + "--set train.steps=12 ";
  const Outcome run = run_program(folder_, "train --json --quiet " + config_ + set);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("warning: 5 of 12 steps had no labels"));
  const auto lines = metrics(folder_ / "run");
  double sum = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("labels") == 0, i < 5) << i;
    sum += lines[i].at("loss").get<double>();
  }
  const auto table = nlohmann::json::parse(run.out);
  EXPECT_NEAR(table.at(0).at("train_loss").get<double>(), sum / 7, 1e-4);
  const Outcome report = run_program(
      folder_, "report --json " + (folder_ / "run") + " --out " + (folder_ / "page.html"));
  ASSERT_EQ(report.code, 0) << report.err;
  EXPECT_NEAR(nlohmann::json::parse(report.out).at(0).at("train_loss").get<double>(), sum / 7,
              1e-4);
  const Outcome inspect = run_program(folder_, "data inspect --json " + config_ + set + "--n 0");
  EXPECT_EQ(nlohmann::json::parse(inspect.out).at("labels"), 999);
}

TEST(EndingRuns, stop_where_the_gradient_is_zero) {
  for (const bool goes_on : {false, true}) {
    const ScratchFolder folder;
    TinyRun run(
        tiny_config(folder, {goes_on ? "train.max_zero_gradients=0" : "train.log_every=1"}));
    run.fill("lm_head.weight", 0);
    run.fill("model.norm.weight", 0);
    const std::string error = test::error_of([&] { run.trainer.run(StartMode::fresh, {}); });
    EXPECT_THAT(error, HasSubstr(goes_on ? "no error"
                                         : "the gradient is 0 though the step has labels at step "
                                           "3, the last of 3 such steps"));
  }
}

// Rates and clips that the weights do not feel, and others that they do.
TEST(EndingRuns, stop_where_no_weight_moves) {
  const std::vector<std::string> still[] = {
      {"optim.lr=1e-30"},
      {"optim.lr=1e-30", "recipe=bf16"},
      {"optim.lr=1e-30", "model.kind=gpt2"},  // whose biases begin at 0
      {"optim.lr=1e-30", "optim.warmup=0", "recipe=coat"},
      {"optim.rules=[{match: '*', kind: adamw, lr: 1e-30}]"},
      {"optim.kind=sgd", "optim.lr=1e-9"},
      {"recipe=bf16", "optim.master=bf16_sr", "optim.lr=1e-12"},
      {"recipe=bf16", "optim.master=fp16_scaled", "optim.lr=1e-30"},
      {"optim.clip=1e-30"},
      {"optim.clip=1e-12", "optim.kind=sgd"}};
  for (const auto& sets : still) {
    const ScratchFolder folder;
    SCOPED_TRACE(sets.front() + (sets.size() > 1 ? " " + sets[1] : ""));
    TinyRun run(tiny_config(folder, sets));
    EXPECT_THAT(test::error_of([&] { run.trainer.run(StartMode::fresh, {}); }),
                HasSubstr("train.max_zero_gradients"));
    EXPECT_EQ(run.trainer.step_count(), 3);
  }
  const std::vector<std::string> moving[] = {
      {"optim.lr=1e-6", "optim.warmup=1000", "train.steps=2000"},
      {"optim.lr=1e-5", "recipe=bf16", "optim.master=bf16_sr", "optim.warmup=0"},
      {"optim.lr=1e-6", "recipe=bf16", "optim.master=fp16_scaled", "optim.warmup=0"},
      {"optim.lr=1e-4", "optim.kind=sgd"},
      {"optim.lr=1e-5", "optim.kind=muon"},
      {"optim.lr=1e-5", "optim.kind=lamb", "optim.clip=1e-12"},
      {"optim.lr=1e-30", "train.max_zero_gradients=0"}};
  for (const auto& sets : moving) {
    const ScratchFolder folder;
    SCOPED_TRACE(sets.front() + " " + sets[1]);
    TinyRun run(tiny_config(folder, sets));
    ASSERT_TRUE(run.trainer.begin(StartMode::fresh, {}));
    EXPECT_EQ(test::error_of([&] {
                for (int i = 0; i < 5; ++i) run.trainer.advance();
              }),
              "no error");
  }
}

// A head of zeros that hardly moves: every token has the same loss.
TEST_F(Endings, stop_where_all_ranks_have_the_same_loss) {
  const std::string model = test::put_model(
      folder_, test::small_spec(), "flat", [](const std::string& name, std::vector<float>& values) {
        if (name == "lm_head.weight") values.assign(values.size(), 0);
      });
  std::string yaml = tiny_yaml(folder_);
  const std::string shape = "{kind: llama, hidden: 32, layers: 2, heads: 4, ffn: 40, vocab: 256,";
  yaml.replace(yaml.find(shape), shape.size(), "{path: " + model + ",");
  const std::string flat = folder_.put("flat.yaml", yaml);
  const std::string flags = "train --quiet --ranks 2 --overwrite --set optim.lr=1e-12 " + flat;
  const Outcome run = run_program(folder_, flags);
  EXPECT_EQ(run.code, 4) << run.err;
  EXPECT_THAT(run.err, HasSubstr("warning: step 1: all ranks have the same loss, "));
  EXPECT_THAT(run.err, HasSubstr("though their rows differ at step 3, the last of 3"));
  EXPECT_EQ(run_program(folder_, flags + " --set train.max_zero_gradients=0").code, 0);
}

}  // namespace
}  // namespace octet::train_endings_test
