// Input of an evaluation: the rows of a run's own validation, conversations as training reads them,
// texts without what is not in them; and what it says of how much it read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "cli/finetune/small_model.h"
#include "cli/program_run.h"

namespace octet::finetune_eval_run_test {
namespace {

using test::Fixture;
using test::Outcome;
using test::put_talks;
using test::run_program;
using test::ScratchFolder;
using test::sets_with;
using test::Tuner;
using testing::HasSubstr;

struct Evaluated {
  Json rows;
  std::string err;
  double nll(size_t row = 0) const { return rows.at(row).at("nll"); }
};

Evaluated evaluate(const ScratchFolder& folder, const std::string& flags) {
  const Outcome outcome = run_program(folder, "eval --json " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return {outcome.code == 0 ? Json::parse(outcome.out) : Json::array(), outcome.err};
}

std::vector<std::string> sets_of_eval(const std::vector<std::string>& more) {
  std::vector<std::string> sets = {"recipe=fp32",          "optim.lr=0.01",
                                   "train.steps=4",        "train.batch=4",
                                   "train.eval_every=2",   "train.save_every=2",
                                   "train.export=none",    "train.tensorboard=false",
                                   "optim.warmup_share=0", "data.val_fraction=0.3"};
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// Packed and each in a row of its own, in one length and in several, all weights and adapters.
class OwnConversations : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(OwnConversations, are_evaluated_to_the_loss_that_the_run_logged) {
  Fixture f;
  Tuner run(f.options, sets_of_eval(GetParam()));
  const double logged = run.trainer.run({StartMode::fresh, run.loaded.source}, {}).val_loss.value();
  const Evaluated own = evaluate(f.folder, "--model " + (f.folder / "run"));
  EXPECT_NEAR(own.nll(), logged, 2e-6 * logged);
  EXPECT_EQ(own.rows[0].at("step"), 4);
  EXPECT_EQ(own.rows[0].at("read"), "all 18 documents");
}

INSTANTIATE_TEST_SUITE_P(
    rows, OwnConversations,
    testing::Values(std::vector<std::string>{}, std::vector<std::string>{"data.pack=false"},
                    std::vector<std::string>{"data.pack=false", "data.buckets=2"},
                    std::vector<std::string>{"lora.rank=4"}),
    [](const auto& info) { return "case_" + std::to_string(info.index); });

TEST(Conversations, of_a_file_are_read_as_training_reads_them) {
  Fixture f;
  const std::string held = put_talks(f.folder, 11, "held.jsonl");
  Tuner run(f.options, sets_of_eval({"data.val=[" + held + "]", "data.val_fraction=0"}));
  const double expected = run.trainer.evaluate().value();
  const std::string of_folder = "--model " + (f.folder / "model") + " --data " + held;
  const Evaluated read = evaluate(f.folder, of_folder);
  EXPECT_NEAR(read.nll(), expected, 2e-6 * expected);
  EXPECT_EQ(read.rows[0].at("read"), "all 11 documents");
  EXPECT_EQ(evaluate(f.folder, of_folder + " --per-row").rows.size(), 12u);
  const Evaluated raw = evaluate(f.folder, of_folder + " --raw-text");
  EXPECT_GT(raw.rows[0].at("tokens"), 5 * read.rows[0].at("tokens").get<int64_t>());
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const std::string of_run = "--model " + (f.folder / "run");
  EXPECT_EQ(evaluate(f.folder, of_run + " --data " + held).nll(), evaluate(f.folder, of_run).nll());
  const Outcome refused = run_program(f.folder, "eval " + of_folder + " --split-on x");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--split-on: expected none with conversations (--raw-text"));
  const Outcome own = run_program(f.folder, "eval " + of_run + " --text-end");
  EXPECT_EQ(own.code, 2);
  EXPECT_THAT(own.err, HasSubstr("--text-end: expected none with conversations\n"));
  const Outcome raw_own = run_program(f.folder, "eval " + of_run + " --raw-text");
  EXPECT_EQ(raw_own.code, 2);
  EXPECT_THAT(raw_own.err, HasSubstr("--raw-text: expected --data beside it"));
}

TEST(Evaluations, say_what_they_leave_out) {
  Fixture f;
  std::vector<std::string> lines;
  const Log log([&](LogLevel, const std::string& line) { lines.push_back(line); });
  Tuner run(f.options, sets_of_eval({"train.eval_bytes=60"}));
  const TrainResult result = run.trainer.run({StartMode::fresh, run.loaded.source}, {.log = log});
  EXPECT_THAT(result.val_amount, testing::MatchesRegex("[0-9]+ of 18 documents"));
  EXPECT_THAT(lines, testing::Contains(HasSubstr("an evaluation reads " + result.val_amount)));
  EXPECT_THAT(lines, testing::Contains(testing::AllOf(HasSubstr("validation loss"),
                                                      HasSubstr("(" + result.val_amount + ")"))));
  EXPECT_THAT(lines, testing::Contains(testing::AllOf(HasSubstr("lowest validation loss"),
                                                      HasSubstr("over " + result.val_amount))));
  const std::string of_run = "--model " + (f.folder / "run");
  const Evaluated own = evaluate(f.folder, of_run);
  EXPECT_NEAR(own.nll(), result.val_loss.value(), 2e-6 * own.nll());
  EXPECT_EQ(own.rows[0].at("read"), result.val_amount);
  EXPECT_THAT(own.err, HasSubstr(result.val_amount + " are read, as in the run's own"));
  EXPECT_EQ(evaluate(f.folder, of_run + " --max-tokens 0").rows[0].at("read"), "all 18 documents");
  const Evaluated less = evaluate(f.folder, of_run + " --max-tokens 1");
  EXPECT_THAT(less.err, HasSubstr("1 of 18 documents are read\n"));
}

TEST(Evaluations, take_the_step_that_is_asked_for) {
  Fixture f;
  // A rate that makes each step worse than the first.
  Tuner run(f.options, sets_of_eval({"optim.lr=3", "optim.schedule=constant", "train.keep=9",
                                     "train.max_nonfinite_steps=100"}));
  const TrainResult result = run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  ASSERT_EQ(result.best_step, 2) << "the run must have its best evaluation before its end";
  const std::string of_run = "--model " + (f.folder / "run");
  const Evaluated newest = evaluate(f.folder, of_run),
                  best = evaluate(f.folder, of_run + " --step best");
  EXPECT_THAT(newest.err, HasSubstr("step 4; the lowest validation loss was at step 2"));
  EXPECT_EQ(best.rows[0].at("step"), 2);
  EXPECT_NEAR(best.nll(), result.best_val_loss, 2e-6 * result.best_val_loss);
  EXPECT_EQ(evaluate(f.folder, of_run + " --step 2").nll(), best.nll());
  const Outcome absent = run_program(f.folder, "eval --step 3 " + of_run);
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.err, HasSubstr("newest, best or one of the checkpoints"));
  EXPECT_EQ(evaluate(f.folder, of_run + " --step newest").nll(), newest.nll());
  for (const char* step : {"newest", "best", "2"}) {
    const Outcome of_folder = run_program(
        f.folder, std::string("eval --step ") + step + " --model " + (f.folder / "model"));
    EXPECT_EQ(of_folder.code, 2);
    EXPECT_THAT(of_folder.err, HasSubstr("--step: expected a run beside it"));
  }
}

TEST(Evaluations, of_a_run_without_one_have_no_best_step) {
  Fixture f;
  Tuner run(f.options, sets_with({"data.val_fraction=0"}));
  run.trainer.run({StartMode::fresh, run.loaded.source}, {});
  const Outcome none = run_program(f.folder, "eval --step best --model " + (f.folder / "run"));
  EXPECT_EQ(none.code, 3);
  EXPECT_THAT(none.err, HasSubstr("--step: expected newest, got best: no evaluation"));
}

// Each model and recipe beside the first, on the tokens that the first reads.
TEST(Models, of_one_tokenizer_are_compared_window_by_window) {
  Fixture f;
  const auto louder = [](const std::string&, std::vector<float>& values) {
    for (float& value : values) value *= 1.25f;
  };
  const std::string other = put_model(f.folder, test::small_spec(), "other", louder);
  const std::string text = f.folder.put("text.txt", test::easy_text(200));
  const std::string flags = " --seq 32 --data " + text;
  const std::string first = "--model " + (f.folder / "model");
  const Evaluated all =
      evaluate(f.folder, first + flags + " --per-row --recipe fp32,bf16 --against " + other);
  ASSERT_EQ(all.rows.size(), 32u);  // seven windows and their sum, by model and recipe
  const Json& last = all.rows.back();
  EXPECT_EQ(last.at("model"), other);
  EXPECT_EQ(last.at("recipe"), "bf16");
  EXPECT_EQ(all.rows[7].at("model"), f.folder / "model");
  EXPECT_EQ(all.nll(23), evaluate(f.folder, "--model " + other + flags).nll());
  double sum = 0, n = 0, squares = 0;
  for (size_t i = 0; i < 7; ++i) {
    const double tokens = all.rows[i].at("tokens");
    sum += tokens * (all.nll(16 + i) - all.nll(i));
    n += tokens;
  }
  for (size_t i = 0; i < 7; ++i) {
    const double tokens = all.rows[i].at("tokens");
    squares += std::pow(tokens * (all.nll(16 + i) - all.nll(i) - sum / n), 2);
  }
  EXPECT_NEAR(all.rows[23].at("difference"), sum / n, 2e-6);
  EXPECT_NEAR(all.rows[23].at("stderr_difference"), std::sqrt(squares * 7 / 6) / n, 2e-6);
  const Outcome tasks =
      run_program(f.folder, "eval " + first + " --tasks lambada --task-data x --against " + other);
  EXPECT_THAT(tasks.err, HasSubstr("--against: expected --tasks nll or perplexity beside it"));
  ModelSpec more = test::small_spec();
  more.vocab = 512;
  const std::string unlike = put_model(f.folder, more, "unlike");
  f.folder.put("unlike/tokenizer.json",
               posix_files().read_text(OCTET_SOURCE_DIR "/tests/fixtures/tokenizers/gpt2.json"));
  const Outcome refused = run_program(f.folder, "eval " + first + flags + " --against " + unlike);
  EXPECT_THAT(refused.err, HasSubstr("--against: expected models that read the tokens of '"));
}

TEST(Recipes, of_a_text_are_compared_window_by_window) {
  Fixture f;
  const std::string text = f.folder.put("text.txt", test::easy_text(200));
  const std::string flags = "--model " + (f.folder / "model") + " --seq 32 --data " + text;
  const Evaluated both = evaluate(f.folder, flags + " --per-row --recipe fp32,fp8_linear");
  ASSERT_EQ(both.rows.size(), 16u);  // seven windows and their sum, twice
  double sum = 0, n = 0, squares = 0;
  const Json& last = both.rows.back();
  for (size_t i = 0; i < 7; ++i) {
    const double tokens = both.rows[i].at("tokens");
    sum += tokens * (both.nll(8 + i) - both.nll(i));
    n += tokens;
  }
  for (size_t i = 0; i < 7; ++i) {
    const double tokens = both.rows[i].at("tokens");
    squares += std::pow(tokens * (both.nll(8 + i) - both.nll(i) - sum / n), 2);
  }
  EXPECT_EQ(last.at("recipe"), "fp8_linear");
  EXPECT_NEAR(last.at("difference"), sum / n, 2e-6);
  EXPECT_NEAR(last.at("stderr_difference"), std::sqrt(squares * 7 / 6) / n, 2e-6);
  EXPECT_NE(last.at("difference"), 0);
  // A short text takes a short window, and says so.
  const std::string few = f.folder.put("few.txt", test::easy_text(20));
  const Evaluated one = evaluate(f.folder, "--model " + (f.folder / "model") + " --data " + few);
  EXPECT_EQ(one.rows[0].at("window"), 32);
  EXPECT_EQ(one.rows[0].at("tokens"), 19);
  const Evaluated most = evaluate(f.folder, "--model " + (f.folder / "model") + " --data " + few +
                                                " --max-tokens 9223372036854775807");
  EXPECT_EQ(most.rows[0].at("tokens"), 19);
  EXPECT_EQ(one.rows[0].at("recipe"), "fp32");
}

}  // namespace
}  // namespace octet::finetune_eval_run_test
