// BERT learns a number of each text, and which texts mean the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/encoders/encoder_run.h"

namespace octet {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::ScratchFolder;
using test::train_encoder;
using test::val_losses;
using testing::HasSubstr;

// How many of four words are "run", in quarters.
std::string scored_texts(int n) {
  std::string table = "sentence1\tsentence2\tscore\n";
  for (int i = 0; i < n; ++i) {
    const int bits = i * 7 % 16;
    const auto word = [&](int bit) { return (bits >> bit & 1) != 0 ? "run" : "scale"; };
    const int sum = (bits & 1) + (bits >> 1 & 1) + (bits >> 2 & 1) + (bits >> 3 & 1);
    table += fmt::format("{} {}\t{} {}\t{}\n", word(0), word(1), word(2), word(3), sum / 4.0);
  }
  return table;
}

// Two texts with the same two of eight words.
std::string alike_texts(int n) {
  const char* words[] = {"scale", "group", "model", "kernel", "token", "train", "run", "step"};
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const char *a = words[i % 8], *b = words[(i / 8 + i + 1) % 8];
    lines +=
        fmt::format("{{\"anchor\": \"the {} a {}\", \"positive\": \"{} of {}\"}}\n", a, b, b, a);
  }
  return lines;
}

std::string yaml_of(const ScratchFolder& folder, const std::string& head, const std::string& file) {
  return encoder_yaml(folder, ", head: " + head + ", seq: 16",
                      ", val_fraction: 0.2, train: [" + file + "]");
}

TEST(Numbers, a_bert_learns_a_number_of_each_pair) {
  const ScratchFolder folder;
  const std::string yaml = yaml_of(folder, "value", folder.put("t.tsv", scored_texts(300)));
  const Outcome outcome = train_encoder(folder, yaml, "--set train.steps=160");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(val_losses(folder / "run").back(), 0.01);  // 0.0625 where it knows the mean
  const double spearman = test::metrics(folder / "run").back().at("val_spearman").get<double>();
  EXPECT_GT(spearman, 0.9);
  const Outcome evaluated = test::run_program(
      folder, "eval --model " + (folder / "run") + " --data " +
                  folder.put("own.tsv", scored_texts(300)) + " --recipe fp32,bf16 --json");
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const auto lines = nlohmann::json::parse(evaluated.out);
  EXPECT_GT(lines[1].at("spearman").get<double>(), 0.9) << evaluated.out;
  EXPECT_EQ(lines[0].count("prediction"), 0u);
  const Outcome written =
      test::run_program(folder, "convert " + (folder / "run") + " " + (folder / "out"));
  ASSERT_EQ(written.code, 0) << written.err;
  const auto config =
      nlohmann::json::parse(posix_files().read_text(folder / "out" + "/config.json"));
  EXPECT_EQ(config.at("architectures")[0], "BertForSequenceClassification");
  EXPECT_EQ(config.at("problem_type"), "regression");
  // And read back as what it is.
  const Outcome again = train_encoder(
      folder,
      "model: {path: " + (folder / "out") + ", seq: 16}\nrecipe: fp32\ndata: {train: [" +
          folder.put("t.tsv", scored_texts(300)) +
          "], val_fraction: 0.2}\noptim: {lr: 1.0e-6}\ntrain: {steps: 1, batch: 8, eval_every: 1, "
          "save_every: 0}\nout: " +
          (folder / "again") + "\n");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NEAR(val_losses(folder / "again").back(), val_losses(folder / "run").back(), 1e-4);
}

TEST(Numbers, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  test::expect_same_bits_resumed(folder,
                                 yaml_of(folder, "value", folder.put("t.tsv", scored_texts(50))));
}

TEST(Numbers, a_label_that_is_none_is_told_and_nothing_else_is_lost) {
  const ScratchFolder folder;
  const std::string file = folder.put("t.tsv", scored_texts(9) + "run\tscale\thigh\n");
  const Outcome outcome =
      test::run_program(folder, "train " + folder.put("e.yaml", yaml_of(folder, "value", file)) +
                                    " --set train.steps=1 --set data.val_fraction=0");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("t.tsv:11 is left out: expected a number, got 'high'"));
  EXPECT_THAT(outcome.err, HasSubstr("9 training and 0 validation samples"));
}

TEST(Pairs, a_bert_learns_which_texts_mean_the_same) {
  const ScratchFolder folder;
  const std::string yaml =
      yaml_of(folder, "embeddings", folder.put("pairs.jsonl", alike_texts(300)));
  const Outcome outcome = train_encoder(folder, yaml, "--set train.steps=160");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto all = test::metrics(folder / "run");
  EXPECT_GT(all.front().at("loss").get<double>(), 0.5);  // of four pairs, log 4 = 1.39
  EXPECT_LT(val_losses(folder / "run").back(), 0.3);
  EXPECT_GT(all.back().at("val_accuracy").get<double>(), 0.9);
  // What was trained is what texts are embedded with: alike texts are nearest.
  const Outcome embedded =
      test::run_program(folder, "embed --model " + (folder / "run") + " --texts " +
                                    folder.put("texts.txt", "the scale a run\nrun of scale\n") +
                                    " --out " + (folder / "x.npy"));
  EXPECT_EQ(embedded.code, 0) << embedded.err;
}

// A folder of an encoder alone, which says nothing of what it was trained for.
TEST(Pairs, an_encoder_alone_is_evaluated_and_quantized_on_pairs) {
  const ScratchFolder folder;
  const std::string pairs = folder.put("pairs.jsonl", alike_texts(64));
  const Outcome trained =
      train_encoder(folder, yaml_of(folder, "embeddings", pairs), "--set train.steps=40");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string model = folder / "alone";
  const Outcome written = test::run_program(folder, "convert " + (folder / "run") + " " + model);
  ASSERT_EQ(written.code, 0) << written.err;
  const auto figures = [&](const std::string& of) {
    const Outcome outcome = test::run_program(
        folder, "eval --model " + of + " --data " + pairs + " --recipe fp32 --seq 16 --json");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at(0);
  };
  EXPECT_EQ(figures(model).at("nll"), figures(folder / "run").at("nll"));
  const Outcome quantized = test::run_program(
      folder, "ptq --model " + model + " --format e4m3 --method max --seq 16 --calib " + pairs +
                  " --eval " + pairs + " --out " + (folder / "out") + " --json");
  ASSERT_EQ(quantized.code, 0) << quantized.err;
  const auto line = nlohmann::json::parse(quantized.out).at("models").at(0);
  const auto number = [&](const char* name) { return line.at(name).get<double>(); };
  EXPECT_NEAR(number("nll_before"), figures(model).at("nll").get<double>(), 1e-5);
  EXPECT_NE(number("nll_after"), number("nll_before"));
  EXPECT_NEAR(number("nll_after"), number("nll_before"), 0.2);
}

// There is nothing that its two texts could be told from.
TEST(Pairs, a_batch_of_one_pair_is_refused) {
  const ScratchFolder folder;
  const std::string yaml =
      yaml_of(folder, "embeddings", folder.put("pairs.jsonl", alike_texts(20)));
  const Outcome outcome = train_encoder(folder, yaml, "--set train.batch=2");
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("train.batch: expected at least 4, the rows of 2 samples that "
                                     "contrastive tells from each other, got 2"));
}

TEST(Pairs, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  test::expect_same_bits_resumed(
      folder, yaml_of(folder, "embeddings", folder.put("pairs.jsonl", alike_texts(50))));
}

}  // namespace
}  // namespace octet
