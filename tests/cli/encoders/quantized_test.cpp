// Post-training quantization of encoders: a table of what they are evaluated by, before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/encoders/encoder_run.h"

namespace octet::encoders_quantized_test {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::train_encoder;
using testing::HasSubstr;

// The table's rows of `octet ptq --model MODEL` with these flags.
Json quantized_rows(const ScratchFolder& folder, const std::string& model,
                    const std::string& flags) {
  const Outcome outcome = run_program(folder, "ptq --quiet --json --model " + model + " " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? Json::parse(outcome.out).at("models") : Json();
}

double number(const Json& row, const std::string& column) {
  return row.at(column).get<double>();
}

// Texts whose class is whether they say that something is fast.
std::string sentences(int n) {
  const char* words[] = {"scale", "group", "model", "kernel", "token"};
  std::string lines;
  for (int i = 0; i < n; ++i) {
    const bool is_fast = i * i % 7 < 3;
    lines +=
        fmt::format("{{\"text\": \"the {} and the {} {}\", \"label\": \"{}\"}}\n", words[i % 5],
                    words[i / 5 % 5], is_fast ? "run" : "train", is_fast ? "fast" : "slow");
  }
  return lines;
}

// Trains a classifier on so many texts, as the run "run"; the texts' file.
std::string train_classifier(const ScratchFolder& folder, int n_texts, const std::string& keys) {
  const std::string texts = folder.put("texts.jsonl", sentences(n_texts));
  const Outcome trained = train_encoder(
      folder, encoder_yaml(folder, ", head: classes, seq: 16", ", train: [" + texts + "]"),
      keys + " --set train.eval_every=0");
  EXPECT_EQ(trained.code, 0) << trained.err;
  return texts;
}

TEST(QuantizedEncoder, a_classifier_of_texts_keeps_its_classes_but_in_a_format_out_of_range) {
  const ScratchFolder folder;
  const std::string texts = train_classifier(folder, 120, "--set train.steps=60");
  ASSERT_FALSE(HasFailure());
  const std::string data = "--calib " + texts + " --eval " + texts + " --limit 100 --batch 32";
  const Json rows =
      quantized_rows(folder, folder / "run",
                     "--format e4m3 --method direct --bias 7,1 --out " + (folder / "q ") + data);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("rows"), 100);
  EXPECT_GE(number(rows[0], "acc_before"), 0.95);
  EXPECT_NEAR(number(rows[0], "acc_change"), 0, 0.05);
  EXPECT_LT(std::abs(number(rows[0], "cross_entropy_change")), 0.1);
  EXPECT_GT(number(rows[1], "cross_entropy_change"),
            5 * std::abs(number(rows[0], "cross_entropy_change")));
  EXPECT_FALSE(rows[0].contains("top5_after"));  // there are two classes
  // Under its recipe the run is evaluated as the table says, and compared with others.
  const Outcome evaluated =
      run_program(folder, "eval --json --model " + (folder / "run") + " --data " + texts +
                              " --limit 100 --batch 32 --recipe fp32,fp8_linear");
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json recipes = Json::parse(evaluated.out);
  ASSERT_EQ(recipes.size(), 2u);
  EXPECT_NEAR(number(recipes[0], "cross_entropy"), number(rows[0], "cross_entropy_before"), 2e-6);
  EXPECT_NEAR(number(recipes[0], "f1"), number(rows[0], "f1_before"), 2e-6);
  EXPECT_GE(number(recipes[0], "f1"), 0.95);
  EXPECT_NEAR(number(recipes[1], "cross_entropy_difference"),
              number(recipes[1], "cross_entropy") - number(recipes[0], "cross_entropy"), 2e-6);
  EXPECT_NE(number(recipes[1], "cross_entropy_difference"), 0);
  // The written model is evaluated as the table says, and its classes keep their names.
  const Json again = quantized_rows(
      folder, folder / "run",
      "--format int8 --method max --weights channel --out " + (folder / "int8 ") + data);
  EXPECT_EQ(again[0].at("cross_entropy_before"), rows[0].at("cross_entropy_before"));
  EXPECT_THAT(posix_files().read_text(folder / "int8/config.json"), HasSubstr("\"fast\""));
  EXPECT_THAT(posix_files().read_text(folder / "int8/config.json"),
              HasSubstr("compressed-tensors"));
}

TEST(QuantizedEncoder, hidden_tokens_are_found_as_well) {
  const ScratchFolder folder;
  std::string text;
  while (text.size() < 8000) text += "The scale of a group is the largest amax, a step later. ";
  const std::string path = folder.put("text.txt", text);
  const Outcome trained =
      train_encoder(folder,
                    encoder_yaml(folder, ", head: masked, seq: 28",
                                 ", train: [" + path + "], val: [" + path + "]"),
                    "--set train.steps=60 --set train.eval_every=60");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Outcome converted =
      run_program(folder, "convert " + (folder / "run ") + (folder / "model"));
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Json rows = quantized_rows(folder, folder / "model",
                                   "--format hif8 --method algorithm1 --seq 28 --out " +
                                       (folder / "q ") + "--calib " + path + " --eval " + path);
  ASSERT_EQ(rows.size(), 1u);
  // The run evaluates the same rows.
  EXPECT_NEAR(number(rows[0], "nll_before"), test::val_losses(folder / "run").back(), 1e-4);
  EXPECT_LT(std::abs(number(rows[0], "nll_change")), 0.05);
  EXPECT_FALSE(posix_files().exists("token-cache"));
}

TEST(QuantizedEncoder, what_the_model_does_not_read_is_said) {
  const ScratchFolder folder;
  const std::string texts = train_classifier(folder, 20, "--set train.steps=1");
  ASSERT_FALSE(HasFailure());
  const auto error = [&](const std::string& flags) {
    return run_program(folder, "ptq --format e4m3 --method max --model " + (folder / "run") +
                                   " --out " + (folder / "q ") + flags)
        .err;
  };
  EXPECT_THAT(error("--calib " + folder.put("text.txt", "the model")), HasSubstr("text.txt"));
  EXPECT_THAT(error("--calib " + texts + " --keep none"),
              HasSubstr("expected a pattern that matches a linear, such as"));
  EXPECT_THAT(
      run_program(folder, "eval --tasks nll --model " + (folder / "run") + " --data " + texts).err,
      HasSubstr("expected a model that writes text, got bert"));
}

}  // namespace
}  // namespace octet::encoders_quantized_test
