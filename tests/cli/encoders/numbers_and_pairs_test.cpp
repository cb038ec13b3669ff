// BERT learns a number of each text, and which texts mean the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/encoders/encoder_run.h"

namespace octet::encoders_numbers_and_pairs_test {
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
  // Texts are embedded with what was trained: alike texts are nearest.
  const Outcome embedded =
      test::run_program(folder, "embed --model " + (folder / "run") + " --texts " +
                                    folder.put("texts.txt", "the scale a run\nrun of scale\n") +
                                    " --out " + (folder / "x.npy"));
  EXPECT_EQ(embedded.code, 0) << embedded.err;
}

// Negatives are as many as the file has columns; an evaluation of the run counts them too.
TEST(Pairs, texts_that_do_not_mean_the_same_are_told_from_their_pairs) {
  const ScratchFolder folder;
  std::string triplets = alike_texts(36);
  for (size_t at = triplets.find("\"}"); at != triplets.npos; at = triplets.find("\"}", at + 40))
    triplets.replace(at, 2, "\", \"negative\": \"the step a run\"}");
  const std::string file = folder.put("t.jsonl", triplets);
  const std::string yaml = yaml_of(folder, "embeddings", file);
  EXPECT_THAT(train_encoder(folder, yaml, "--set train.batch=8").err,
              HasSubstr("train.batch: expected a multiple of 3, the rows of a sample, got 8"));
  const std::string keys = "--set train.steps=2 --set train.batch=9 --set data.val=[" + file +
                           "] --set data.val_fraction=0 ";
  ASSERT_EQ(train_encoder(folder, yaml, keys).code, 0);
  EXPECT_THAT(posix_files().read_text(folder / "run/config.yaml"),
              HasSubstr("negatives: [\"negative\"]"));
  const Outcome evaluated = test::run_program(
      folder, "eval --model " + (folder / "run") + " --data " + file + " --json");  // by 9 rows
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_NEAR(nlohmann::json::parse(evaluated.out).at(0).at("nll").get<double>(),
              val_losses(folder / "run").back(), 1e-5);
  const std::string eval = "eval --json --model " + (folder / "run") + " --data " + file;
  EXPECT_EQ(test::run_program(folder, eval).out, evaluated.out);  // 8 rows are 9
  const Outcome parts = test::run_program(folder, eval + " --batch 8");
  EXPECT_EQ(parts.code, 2);
  EXPECT_THAT(parts.err, HasSubstr("--batch: expected a multiple of 3, the rows of a sample"));
  const Outcome quantized = test::run_program(
      folder, "ptq --model " + (folder / "run") + " --format e4m3 --method max --calib " + file +
                  " --eval " + file + " --samples 4 --out " + (folder / "q"));
  EXPECT_EQ(quantized.code, 0) << quantized.err;
  // Without them the task is easier.
  ASSERT_EQ(train_encoder(folder, yaml,
                          keys + "--overwrite --set data.fields.negatives=[]"
                                 " --set train.batch=6")
                .code,
            0);
  EXPECT_NE(val_losses(folder / "run").back(),
            nlohmann::json::parse(evaluated.out).at(0).at("nll").get<double>());
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
  // Negatives are not read: eight rows are four pairs.
  std::string triplets = alike_texts(64);
  for (size_t at = triplets.find("\"}"); at != triplets.npos; at = triplets.find("\"}", at + 30))
    triplets.replace(at, 2, "\", \"negative\": \"a run\"}");
  const std::string more = folder.put("triplets.jsonl", triplets);
  const Outcome beside = test::run_program(
      folder, "ptq --model " + model + " --format e4m3 --method max --seq 16 --calib " + more +
                  " --eval " + more + " --out " + (folder / "more") + " --json");
  ASSERT_EQ(beside.code, 0) << beside.err;
  EXPECT_EQ(nlohmann::json::parse(beside.out).at("models").at(0).at("nll_after"),
            line.at("nll_after"));
}

// Three pairs have the same candidates whatever room there is beside them, and eight in rooms of
// three those of 3, 3 and 2; a run's own evaluation has its batch and its temperature.
TEST(Pairs, that_only_fill_a_batch_up_are_no_candidates) {
  const ScratchFolder folder;
  const std::string yaml =
      yaml_of(folder, "embeddings", folder.put("pairs.jsonl", alike_texts(40)));
  const Outcome trained = train_encoder(
      folder, yaml,
      "--set train.steps=8 --set train.batch=6 --set train.contrastive_temperature=0.5");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto nll_of = [&](const std::string& data, const std::string& flags) {
    const Outcome outcome = test::run_program(folder, "eval --json --model " + (folder / "run") +
                                                          data + " --recipe fp32 --seq 16" + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at(0).at("nll").get<double>();
  };
  const auto of_pairs = [&](int first, int n, const std::string& batch) {
    std::istringstream lines(alike_texts(40));
    std::string part, line;
    for (int i = 0; std::getline(lines, line) && i < first + n; ++i)
      if (i >= first) part += line + "\n";
    return nll_of(" --data " + folder.put("part.jsonl", part), " --batch " + batch);
  };
  const double three = of_pairs(0, 3, "6");
  EXPECT_GT(three, 0.1);
  for (const char* batch : {"8", "16"}) EXPECT_NEAR(of_pairs(0, 3, batch), three, 1e-6) << batch;
  EXPECT_NEAR(of_pairs(0, 8, "6"),
              (3 * three + 3 * of_pairs(3, 3, "6") + 2 * of_pairs(6, 2, "4")) / 8, 2e-6);
  // 8 pairs are held out, in rooms of three.
  EXPECT_NEAR(nll_of("", ""), val_losses(folder / "run").back(), 2e-6);
  EXPECT_NEAR(nll_of(" --data " + folder.put("all.jsonl", alike_texts(40)), " --batch 6 --limit 8"),
              of_pairs(0, 8, "6"), 1e-6);
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
}  // namespace octet::encoders_numbers_and_pairs_test
