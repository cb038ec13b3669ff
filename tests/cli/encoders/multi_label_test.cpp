// BERT learns which of several labels each text has.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/encoders/encoder_run.h"

namespace octet::encoders_multi_label_test {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::train_encoder;
using test::val_losses;
using testing::HasSubstr;

enum class Written : uint8_t { names, numbers, shares };

// A word of the text says which labels it has.
std::string labelled_texts(int n, Written how) {
  const char* words[] = {"group", "kernel", "model", "scale"};
  const char* names[] = {"cold", "loud", "rude", "warm"};
  const std::vector<int> labels_of[] = {{0}, {1, 2}, {}, {0, 1, 3}};
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const auto word = static_cast<size_t>(i * 7 % 4);
    const std::vector<int>& own = labels_of[word];
    std::vector<std::string> labels;
    for (int label = 0; label < 4; ++label) {
      const bool is_own = std::ranges::find(own, label) != own.end();
      if (how == Written::shares) labels.push_back(is_own ? "1.0" : "0.0");
      if (how == Written::numbers && is_own) labels.push_back(fmt::to_string(label));
      if (how == Written::names && is_own) labels.push_back(fmt::format("\"{}\"", names[label]));
    }
    lines += fmt::format("{{\"text\": \"the {} runs\", \"labels\": [{}]}}\n", words[word],
                         fmt::join(labels, ", "));
  }
  return lines;
}

std::string yaml_of(const ScratchFolder& folder, const std::string& content) {
  return encoder_yaml(folder, ", head: multi_label, classes: 4, seq: 16",
                      ", val_fraction: 0.2, train: [" + folder.put("t.jsonl", content) + "]");
}

TEST(MultiLabel, a_bert_learns_all_labels_of_a_text_and_is_read_back) {
  const ScratchFolder folder;
  const std::string run = folder / "run", out = folder / "out";
  const Outcome outcome = train_encoder(
      folder, yaml_of(folder, labelled_texts(300, Written::names)), "--set train.steps=160");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto all = test::metrics(run);
  EXPECT_NEAR(all.front().at("loss").get<double>(), 0.69, 0.2);  // log 2 of each label
  EXPECT_LT(val_losses(run).back(), 0.1);
  for (const char* name : {"val_accuracy", "val_subset_accuracy", "val_micro_f1"})
    EXPECT_GT(all.back().at(name).get<double>(), 0.9) << name;
  ASSERT_EQ(run_program(folder, "convert --quiet " + run + " " + out).code, 0);
  const auto config = nlohmann::json::parse(posix_files().read_text(out + "/config.json"));
  EXPECT_EQ(config.at("problem_type"), "multi_label_classification");
  EXPECT_EQ(config.at("architectures")[0], "BertForSequenceClassification");
  EXPECT_EQ(config.at("id2label").at("3"), "warm");
  // Its names number the labels of data that do not have all of them.
  const std::string few =
      folder.put("few.jsonl",
                 "{\"text\": \"the kernel runs\", \"labels\": [\"loud\", \"rude\"]}\n"
                 "{\"text\": \"the model runs\", \"labels\": []}\n");
  const Outcome evaluated =
      run_program(folder, "eval --json --model " + out + " --recipe fp32 --data " + few);
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const auto line = nlohmann::json::parse(evaluated.out).at(0);
  EXPECT_EQ(line.at("labels"), 8);
  EXPECT_EQ(line.at("subset_accuracy"), 1) << evaluated.out;
  EXPECT_EQ(line.at("micro_f1"), 1) << evaluated.out;
  EXPECT_EQ(line.count("logit"), 0u);
  const std::string other =
      folder.put("other.jsonl", "{\"text\": \"the model runs\", \"labels\": [\"mild\"]}\n");
  const Outcome refused = run_program(folder, "eval --model " + out + " --data " + other);
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err,
              HasSubstr("expected classes of " + out + " (cold, loud, rude, warm), got mild"));
}

TEST(MultiLabel, names_numbers_and_a_number_for_each_class_mean_the_same) {
  const ScratchFolder folder;
  const auto bits = [&](Written how, const std::string& out) {
    const Outcome outcome = train_encoder(folder, yaml_of(folder, labelled_texts(40, how)),
                                          "--set train.steps=3 --set out=" + (folder / out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return test::loss_bits(folder / out);
  };
  const auto of_names = bits(Written::names, "names");
  EXPECT_EQ(bits(Written::numbers, "numbers"), of_names);
  EXPECT_EQ(bits(Written::shares, "shares"), of_names);
}

TEST(MultiLabel, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  test::expect_same_bits_resumed(folder, yaml_of(folder, labelled_texts(50, Written::names)));
}

TEST(MultiLabel, labels_that_are_none_are_told) {
  const ScratchFolder folder;
  const std::string texts = labelled_texts(9, Written::numbers);
  const auto train = [&](const std::string& line) {
    return run_program(folder, "train " + folder.put("e.yaml", yaml_of(folder, texts + line)) +
                                   " --overwrite --set train.steps=1 --set data.val_fraction=0");
  };
  Outcome outcome = train("{\"text\": \"the\", \"labels\": [1, {}]}\n{\"text\": \"the\"}\n");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("t.jsonl:10 is left out: expected a list of labels, got "));
  EXPECT_THAT(outcome.err, HasSubstr("t.jsonl:11 is left out: expected a label, got none"));
  outcome = train("{\"text\": \"the\", \"labels\": [4]}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("t.jsonl:10: expected a label from 0 to 3 (model.classes - 1), "
                        "got '4'"));
  // A row of shares among others: its numbers would be classes.
  outcome = train("{\"text\": \"the\", \"labels\": [0, 1, 0, 0]}\n");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("t.jsonl:10: expected numbers of classes, each once, got [0, 1, 0, 0]"));
}

}  // namespace
}  // namespace octet::encoders_multi_label_test
