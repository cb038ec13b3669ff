// BERT learns to find hidden tokens of plain text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/encoders/encoder_run.h"

namespace octet::encoders_masked_text_test {
namespace {

using test::encoder_yaml;
using test::Outcome;
using test::ScratchFolder;
using test::train_encoder;
using test::val_losses;
using testing::HasSubstr;

// Each row has one word of eight, by chance: what is hidden stands in the rest of the row, and
// neither its place nor how frequent words are says what it is. 26 tokens fill a row with [CLS] and
// [SEP].
std::string text_yaml(const ScratchFolder& folder) {
  const char* words[] = {"scale", "group", "model", "kernel", "token", "train", "run", "step"};
  std::string text;
  uint32_t state = 1;
  while (text.size() < 60000) {
    state = state * 1664525u + 1013904223u;
    for (int i = 0; i < 26; ++i) text += words[state >> 29] + std::string(" ");
  }
  const std::string path = folder.put("text.txt", text);
  return encoder_yaml(folder, ", seq: 28", ", train: [" + path + "], val: [" + path + "]");
}

TEST(MaskedText, a_bert_learns_to_find_hidden_tokens_by_what_stands_around_them) {
  const ScratchFolder folder;
  const Outcome outcome =
      train_encoder(folder, text_yaml(folder), "--set train.steps=160 --set optim.lr=8.0e-3");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_GT(test::metrics(folder / "run").front().at("loss").get<double>(), 5);  // log 421 = 6.04
  const std::vector<double> losses = val_losses(folder / "run");
  ASSERT_EQ(losses.size(), 8u);
  EXPECT_LT(losses.back(), 1);  // log 8 = 2.08 without context
  EXPECT_GT(test::metrics(folder / "run").back().at("val_accuracy").get<double>(), 0.7);
}

TEST(MaskedText, a_run_that_goes_on_hides_the_same_tokens) {
  const ScratchFolder folder;
  test::expect_same_bits_resumed(folder, text_yaml(folder), "--set data.mask.share=0.3 ");
}

TEST(MaskedText, two_ranks_hide_the_tokens_that_one_hides) {
  const ScratchFolder folder;
  const std::string yaml = text_yaml(folder);
  const auto losses = [&](const std::string& out, const std::string& more) {
    const Outcome outcome =
        train_encoder(folder, yaml, "--set train.steps=4 " + more + " --set out=" + (folder / out));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return test::metrics(folder / out);
  };
  const auto one = losses("one", ""), two = losses("two", "--ranks 2 --set train.batch=4");
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].at("labels"), two[i].at("labels"));
    EXPECT_NEAR(one[i].at("loss").get<double>(), two[i].at("loss").get<double>(), 1e-3);
  }
}

TEST(MaskedText, a_roberta_is_exported_with_the_padding_that_its_positions_count_from) {
  const ScratchFolder folder;
  const std::string keys = "--set model.kind=roberta --set train.steps=1 --set optim.warmup=1";
  ASSERT_EQ(train_encoder(folder, text_yaml(folder), keys).code, 0);
  const Outcome converted =
      run_program(folder, "convert " + (folder / "run ") + (folder / "model"));
  ASSERT_EQ(converted.code, 0) << converted.err;
  const Json config = Json::parse(posix_files().read_text(folder / "model/config.json"));
  EXPECT_EQ(config.at("pad_token_id"), 0);  // the tokenizer's
  EXPECT_EQ(config.at("max_position_embeddings"), 29);
}

TEST(MaskedText, an_evaluation_reads_as_many_rows_as_asked_for) {
  const ScratchFolder folder;
  const Outcome outcome =
      train_encoder(folder, text_yaml(folder), "--set train.steps=1 --set train.eval_rows=3");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Outcome evaluated =
      run_program(folder, "eval --json --recipe fp32 --model " + (folder / "run"));
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const Json row = Json::parse(evaluated.out).at(0);
  EXPECT_TRUE(row.at("read").get<std::string>().starts_with("3 of ")) << row;
  EXPECT_NEAR(row.at("nll").get<double>(), val_losses(folder / "run").back(), 1e-5);
}

TEST(MaskedText, what_rows_of_hidden_tokens_have_not_is_refused) {
  const ScratchFolder folder;
  const std::string yaml = text_yaml(folder);
  const auto error = [&](const std::string& set) {
    const Outcome outcome = train_encoder(folder, yaml, "--set " + set);
    EXPECT_NE(outcome.code, 0);
    return outcome.err;
  };
  EXPECT_THAT(error("data.tokenizer=bytes"),
              HasSubstr("data.tokenizer: expected a tokenizer with a token [MASK] or <mask>, which "
                        "stands for hidden ones, got 'bytes', which has none"));
  EXPECT_THAT(error("data.pack=true"), HasSubstr("data.pack: expected none"));
  EXPECT_THAT(error("data.document_boundaries=isolate"),
              HasSubstr("data.document_boundaries: expected ignore for an encoder's text"));
}

}  // namespace
}  // namespace octet::encoders_masked_text_test
