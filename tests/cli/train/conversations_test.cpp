// Runs on conversations, on tiny models.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>

#include "backends/cpu/backend.h"
#include "cli/train/first_moments.h"
#include "cli/train/tiny_run.h"
#include "train/row_data.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "unit/base/error_of.h"

namespace octet::train_conversations_test {
namespace {

using test::error_of;
using test::ScratchFolder;

// Questions and answers of uneven lengths; the answer repeats the question.
std::string easy_talks(int n) {
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const std::string word(static_cast<size_t>(1 + i * 7 % 11), static_cast<char>('a' + i % 5));
    lines += "{\"prompt\": \"" + word + "\", \"completion\": \"" + word + "\"}\n";
  }
  return lines;
}

RunConfig config_of(const ScratchFolder& folder, std::vector<std::string> sets = {}) {
  const std::string data = folder.put("talks.jsonl", easy_talks(60));
  sets.insert(sets.begin(), {"data.train=[" + data + "]", "data.chat.template=plain",
                             "model.seq=48", "train.steps=6"});
  return test::tiny_config(folder, sets);
}

struct Session {
  explicit Session(const RunConfig& config, const Log& log = {})
      : backend(cpu::make_backend(2, cpu::detect_isa())),
        data(open_run_data(posix_files(), config, ModelSpec{.vocab = config.model.vocab},
                           {.log = log})),
        trainer(config, data, {posix_files(), *backend.device, *backend.catalogue}) {}
  cpu::Backend backend;
  Dataset data;
  Trainer trainer;
};

TEST(Conversations, are_learned) {
  const ScratchFolder folder;
  Session run(config_of(folder, {"train.steps=30", "train.batch=8"}));
  const double before = run.trainer.evaluate().value();
  for (int i = 0; i < 30; ++i) run.trainer.step();
  EXPECT_LT(run.trainer.evaluate().value(), before - 1.5);
}

TEST(Conversations, a_resumed_run_goes_on_bit_for_bit) {
  const ScratchFolder folder;
  Session(config_of(folder, {"out=" + (folder / "whole")})).trainer.run(StartMode::fresh, {});
  const auto parts = [&] { return config_of(folder, {"out=" + (folder / "parts")}); };
  std::atomic<int> flag = 0;
  TrainHooks hooks;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) {
    if (report.step == 3) flag = 15;
  };
  EXPECT_EQ(Session(parts()).trainer.run(StartMode::fresh, hooks).step, 3);
  EXPECT_EQ(Session(parts()).trainer.run(StartMode::resume, {}).step, 6);
  EXPECT_EQ(test::metrics(folder / "parts"), test::metrics(folder / "whole"));
}

TEST(Conversations, a_run_without_validation_rows_tells_why) {
  const ScratchFolder folder;
  const auto warnings_of = [](const RunConfig& config) {
    std::vector<std::string> warnings;
    TrainHooks hooks;
    hooks.log = Log([&](LogLevel level, const std::string& line) {
      if (level == LogLevel::warning) warnings.push_back(line);
    });
    EXPECT_FALSE(Session(config).trainer.run(StartMode::overwrite, hooks).val_loss);
    return warnings;
  };
  const std::string val =
      folder.put("val.jsonl", R"({"prompt": ")" + std::string(200, 'a') +
                                  R"(", "completion": "b"})" + std::string("\n"));
  EXPECT_EQ(warnings_of(config_of(
                folder, {"data.val=[" + val + "]", "data.val_fraction=0", "data.too_long=drop"})),
            std::vector<std::string>{
                "[data] no document for validation fits into a row of 48 tokens with a token to "
                "train on: there is no validation loss (model.seq, data.too_long)"});
  EXPECT_EQ(warnings_of(test::tiny_config(folder, {"train.steps=1", "train.eval_bytes=1"})),
            std::vector<std::string>{
                "[data] 1 bytes of the validation data hold no two tokens: there is no validation "
                "loss (train.eval_bytes)"});
}

// The first moment after one step is the gradient times a constant.
std::vector<float> gradient_of(Session& session) {
  session.trainer.step();
  return test::first_moments(session.trainer.engine());
}

TEST(Conversations, any_split_of_a_step_gives_the_same_gradient) {
  const ScratchFolder folder;
  const auto gradient = [&](int batch, int accumulate) {
    Session session(config_of(folder, {"train.batch=" + std::to_string(batch),
                                       "train.accumulate=" + std::to_string(accumulate),
                                       "optim.clip=0", "optim.state_m=f32"}));
    return gradient_of(session);
  };
  const std::vector<float> whole = gradient(12, 1);
  float largest = 0;
  for (const float g : whole) largest = std::max(largest, std::fabs(g));
  ASSERT_GT(largest, 0.0f);
  for (const auto& [batch, accumulate] : {std::pair(6, 2), std::pair(4, 3), std::pair(1, 12)}) {
    const std::vector<float> split = gradient(batch, accumulate);
    ASSERT_EQ(split.size(), whole.size());
    float worst = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      worst = std::max(worst, std::fabs(split[i] - whole[i]));
    }
    EXPECT_LE(worst, 1e-6f * largest) << batch << " x " << accumulate;
  }
}

// With rows of several lengths as with one.
TEST(ConversationBuckets, a_resumed_run_goes_on_bit_for_bit) {
  const ScratchFolder folder;
  const auto config = [&](const std::string& out, std::vector<std::string> sets = {}) {
    sets.insert(sets.end(), {"data.buckets=2", "train.steps=40", "out=" + (folder / out)});
    return config_of(folder, sets);
  };
  std::vector<std::string> lines;
  TrainHooks hooks;
  hooks.log = Log([&](LogLevel, const std::string& line) { lines.push_back(line); });
  hooks.on_step = [](const StepReport&) {};
  Session(config("whole")).trainer.run(StartMode::fresh, hooks);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.starts_with("54 documents in 54 rows of 32, 48: ") && line.ends_with(" padding");
  })) << lines.at(0);
  std::atomic<int> flag = 0;
  hooks.stop = &flag;
  hooks.on_step = [&flag](const StepReport& report) {
    if (report.step == 33) flag = 15;  // in the second epoch, of 27 steps each
  };
  EXPECT_EQ(Session(config("parts")).trainer.run(StartMode::fresh, hooks).step, 33);
  EXPECT_EQ(Session(config("parts")).trainer.run(StartMode::resume, {}).step, 40);
  const auto metrics = test::metrics(folder / "whole");
  EXPECT_EQ(test::metrics(folder / "parts"), metrics);
  EXPECT_LT(metrics.back().at("tokens").get<int64_t>(), 40 * 2 * 48);
}

TEST(ConversationBuckets, any_split_of_a_step_gives_the_same_gradient) {
  const ScratchFolder folder;
  const auto gradient = [&](const std::string& buckets, int batch, int accumulate) {
    Session session(config_of(
        folder,
        {"data.buckets=" + buckets, "train.batch=" + std::to_string(batch),
         "train.accumulate=" + std::to_string(accumulate), "optim.clip=0", "optim.state_m=f32"}));
    return gradient_of(session);
  };
  const std::vector<float> whole = gradient("3", 12, 1);
  EXPECT_NE(whole, gradient("1", 12, 1));  // of other rows
  const float largest =
      std::fabs(*std::ranges::max_element(whole, {}, [](float g) { return std::fabs(g); }));
  ASSERT_GT(largest, 0.0f);
  for (const auto& [batch, accumulate] : {std::pair(6, 2), std::pair(1, 12)}) {
    const std::vector<float> split = gradient("3", batch, accumulate);
    for (size_t i = 0; i < whole.size(); ++i)
      ASSERT_NEAR(split[i], whole[i], 1e-6f * largest) << batch << " x " << accumulate;
  }
}

// Validation rows come in the training rows' lengths, and where one fits none, in model.seq.
TEST(ConversationBuckets, evaluate_to_the_loss_of_padded_rows) {
  const ScratchFolder folder;
  const std::string val =
      folder.put("val.jsonl", easy_talks(25) + R"({"prompt": ")" + std::string(50, 'a') +
                                  R"(", "completion": "b"})" + "\n");
  for (const std::string batch : {"1", "4"}) {
    const auto loss = [&](const std::string& buckets) {
      Session session(config_of(
          folder, {"data.val=[" + val + "]", "data.val_fraction=0", "model.seq=80",
                   "train.batch=" + batch, "train.eval_bytes=100000", "data.buckets=" + buckets}));
      return session.trainer.evaluate().value();
    };
    const double padded = loss("1");
    EXPECT_NEAR(loss("3"), padded, 1e-6 * padded) << batch;
  }
}

TEST(ConversationBuckets, evaluate_in_the_lengths_that_they_train_in) {
  const ScratchFolder folder;
  const RunConfig config = config_of(folder, {"data.buckets=3", "train.eval_bytes=100000"});
  Session session(config);
  const auto lengths = make_loader(session.data, config).lengths();
  std::set<int64_t> seen;
  struct Watched : EvalRows {
    Watched(const EvalRows& of, std::set<int64_t>& lengths) : rows(of), seen(lengths) {}
    int64_t n_rows() const override { return rows.n_rows(); }
    Batch at(int64_t first, int64_t batch) const override {
      Batch result = rows.at(first, batch);
      seen.insert(result.seq);
      return result;
    }
    const EvalRows& rows;
    std::set<int64_t>& seen;
  };
  const auto rows = make_eval_rows(session.data.train, config, 100'000, lengths);
  session.trainer.engine().evaluate(Watched(*rows, seen));
  EXPECT_EQ(std::vector(seen.begin(), seen.end()), lengths);
}

TEST(ConversationBuckets, are_for_conversations_in_rows_of_their_own) {
  const ScratchFolder folder;
  EXPECT_NE(error_of([&] {
              config_of(folder, {"data.buckets=2", "data.pack=true"});
            }).find("data.buckets: expected 1 with data.pack, got 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Session(test::tiny_config(folder, {"data.buckets=2"}));
            }).find("data.buckets: expected 1 but for conversations"),
            std::string::npos);
}

TEST(Conversations, labels_are_the_answers_and_their_ends) {
  const ScratchFolder folder;
  std::vector<std::string> lines;
  Session run(config_of(folder),
              Log([&](LogLevel, const std::string& line) { lines.push_back(line); }));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("60 records (60 of pair) in 1 files, template plain"), std::string::npos)
      << lines[0];
  const auto loader = make_loader(run.data, config_of(folder));
  const Batch batch = loader.peek(0, 8);
  for (size_t row = 0; row < 8; ++row) {
    std::string text, trained;
    for (size_t i = 0; i < 48; ++i) {
      text += static_cast<char>(batch.ints("tokens")[row * 48 + i]);
      const int32_t label = batch.ints("labels")[row * 48 + i];
      if (label != kIgnoredLabel) trained += static_cast<char>(label);
    }
    const size_t answer = text.find("Assistant: ") + 11;
    EXPECT_EQ(trained, text.substr(answer, text.find('\0') - answer) + "\n");
  }
}

TEST(Conversations, what_is_too_long_for_all_rows_is_an_error) {
  const ScratchFolder folder;
  EXPECT_NE(error_of([&] {
              Session(config_of(folder, {"model.seq=8", "data.too_long=drop"}));
            }).find("data.too_long"),
            std::string::npos);
}

}  // namespace
}  // namespace octet::train_conversations_test
