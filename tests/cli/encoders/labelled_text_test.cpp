// BERT learns what is said of texts and of pairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "cli/encoders/encoder_run.h"

namespace octet::encoders_labelled_text_test {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::train_encoder;
using test::val_losses;
using testing::HasSubstr;

// Which of two words comes in which text.
std::string pairs_jsonl(int n) {
  const char* words[] = {"scale", "group", "model", "kernel", "token"};
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const bool is_forward = i * i % 7 < 3;
    lines += fmt::format(
        "{{\"sentence1\": \"{} the {}\", \"sentence2\": \"{} the {}\", \"label\": \"{}\"}}\n",
        is_forward ? "run" : "train", words[i % 5], is_forward ? "train" : "run", words[i / 5 % 5],
        is_forward ? "forward" : "back");
  }
  return lines;
}

std::string pairs_yaml(const ScratchFolder& folder, const std::string& name,
                       const std::string& content) {
  return encoder_yaml(folder, ", head: classes, seq: 16",
                      ", val_fraction: 0.2, train: [" + folder.put(name, content) + "]");
}

TEST(LabelledText, a_bert_learns_to_tell_pairs_apart) {
  const ScratchFolder folder;
  const Outcome outcome = train_encoder(folder, pairs_yaml(folder, "pairs.jsonl", pairs_jsonl(400)),
                                        "--set train.steps=160");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(test::metrics(folder / "run").front().at("loss").get<double>(), 0.5);  // log 2 = 0.69
  const std::vector<double> losses = val_losses(folder / "run");
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_LT(losses.back(), 0.1);
  EXPECT_EQ(test::metrics(folder / "run").back().at("val_accuracy").get<double>(), 1);
  const auto config =
      nlohmann::json::parse(posix_files().read_text(folder / "run" + "/config.json"));
  EXPECT_EQ(config.at("id2label"), nlohmann::json({{"0", "back"}, {"1", "forward"}}));
  EXPECT_EQ(config.at("label2id"), nlohmann::json({{"back", 0}, {"forward", 1}}));
}

// Digits are names where the model's names have some, and what it has no name for is no class.
TEST(LabelledText, is_evaluated_by_the_names_that_the_model_has) {
  const ScratchFolder folder;
  const auto named = [](std::string text, const std::string& back, const std::string& forward) {
    for (const auto& [from, to] : {std::pair<std::string, std::string>("\"back\"", back),
                                   std::pair<std::string, std::string>("\"forward\"", forward)}) {
      for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + 1))
        text.replace(at, from.size(), to);
    }
    return text;
  };
  const std::string texts = pairs_jsonl(30);
  const Outcome trained = train_encoder(folder, pairs_yaml(folder, "pairs.jsonl", pairs_jsonl(60)),
                                        "--set train.steps=8");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto eval = [&](const std::string& model, const std::string& content) {
    return run_program(folder, "eval --json --recipe fp32 --seq 16 --model " + (folder / model) +
                                   " --data " + folder.put("own.jsonl", content));
  };
  const auto loss = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at(0).at("cross_entropy").get<double>();
  };
  const double expected = loss(eval("run", texts));
  ASSERT_EQ(
      run_program(folder, "convert --quiet " + (folder / "run") + " " + (folder / "out")).code, 0);
  const std::string config = posix_files().read_text(folder / "out" + "/config.json");
  folder.put("out/config.json", named(config, "\"1\"", "\"0\""));
  EXPECT_NEAR(loss(eval("out", named(texts, "\"1\"", "\"0\""))), expected, 1e-5);
  EXPECT_GT(std::abs(loss(eval("out", named(texts, "\"0\"", "\"1\""))) - expected), 1e-3);
  for (const char* other : {"\"2\"", "\"up\""}) {
    const Outcome refused = eval("out", named(texts, "\"1\"", other));
    EXPECT_EQ(refused.code, 3) << other;
    EXPECT_THAT(refused.err, HasSubstr("expected classes of"));
  }
}

TEST(LabelledText, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  const std::string yaml = pairs_yaml(folder, "pairs.jsonl", pairs_jsonl(50));
  test::expect_same_bits_resumed(folder, yaml);
}

TEST(LabelledText, a_bad_line_is_told_and_nothing_else_is_lost) {
  const ScratchFolder folder;
  std::string table = "index\tsentence\tlabel\n";
  for (int i = 0; i < 10; ++i) table += fmt::format("{}\tthe model runs\t{}\n", i, i % 2);
  table += "10\tthe model\n11\tthe token\t-1\n12\tthe scale\t1\r\n";
  const Outcome outcome = run_program(
      folder, "train " + folder.put("encoder.yaml", pairs_yaml(folder, "t.tsv", table)) +
                  " --set train.steps=1 --set data.val_fraction=0");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("t.tsv:12 is left out: expected 3 fields, got 2"));
  EXPECT_THAT(outcome.err,
              HasSubstr("t.tsv:13 is left out: expected a label, got '-1', which is none"));
  EXPECT_THAT(outcome.err, HasSubstr("11 training and 0 validation samples"));
}

TEST(LabelledText, labels_and_columns_that_do_not_fit_are_refused) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& line, const std::string& sets = "") {
    const Outcome outcome = train_encoder(folder, pairs_yaml(folder, "t.jsonl", line), sets);
    EXPECT_EQ(outcome.code, 3);
    return outcome.err;
  };
  EXPECT_THAT(error("{\"text\": \"the model\", \"label\": 2}\n"),
              HasSubstr("t.jsonl:1: expected a label from 0 to 1 (model.classes - 1), got '2'"));
  EXPECT_THAT(error(pairs_jsonl(9), "--set model.classes=1"),
              HasSubstr("expected at most 1 labels (model.classes), got 2: back, forward"));
  EXPECT_THAT(error(pairs_jsonl(9), "--set data.fields.text=body"),
              HasSubstr("t.jsonl: expected a text 'body', got sentence1, sentence2, label"));
  EXPECT_THAT(error("{\"body\": \"the model\", \"label\": 2}\n"),
              HasSubstr("t.jsonl: expected text, sentence, sentence1 and sentence2 or the like"));
  EXPECT_THAT(error("no JSON\n"), HasSubstr("expected a text at least, got none"));
}

}  // namespace
}  // namespace octet::encoders_labelled_text_test
