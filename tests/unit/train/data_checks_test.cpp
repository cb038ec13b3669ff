#include "train/data_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/token_rows.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_data_checks_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Said {
  std::vector<std::string> lines;
  Log log() {
    return Log([this](LogLevel level, const std::string& text) {
      lines.push_back((level == LogLevel::warning ? "warning: " : "") + text);
    });
  }
};

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, the 5, group 6.
std::unique_ptr<Tokenizer> words(const test::ScratchFolder& folder) {
  return make_tokenizer(
      posix_files(), folder.put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ngroup\n"));
}

TEST(DataChecks, the_share_of_unknown_tokens_is_told) {
  const test::ScratchFolder folder;
  const auto tokenizer = words(folder);
  Said said;
  check_known(std::vector<int32_t>{2, 5, 6, 3, 2, 6, 6, 3}, *tokenizer, said.log());
  check_known(std::vector<int32_t>{2, 5, 1, 1, 6, 3}, *tokenizer, said.log());
  EXPECT_THAT(said.lines, ElementsAre("[data] 0.00 % of 4 tokens are unknown ([UNK])",
                                      "warning: [data] 50.00 % of 4 tokens are unknown ([UNK])"));
}

TEST(DataChecks, texts_of_unknown_tokens_alone_or_of_none_are_refused) {
  const test::ScratchFolder folder;
  const auto tokenizer = words(folder);
  const auto error = [&](const std::vector<int32_t>& ids, const Tokenizer& of) {
    return test::error_of([&] { check_known(ids, of, {}); });
  };
  EXPECT_THAT(error({2, 1, 3, 2, 1, 1, 3}, *tokenizer),
              HasSubstr("got 3 tokens that are all unknown ([UNK])"));
  EXPECT_THAT(error({2, 3, 2, 3}, *tokenizer), HasSubstr("got nothing but empty texts"));
  EXPECT_THAT(error({}, *byte_tokenizer()), HasSubstr("got nothing but empty texts"));
  EXPECT_EQ(error({0}, *byte_tokenizer()), "no error");
}

// A source of tokens `id`, but for one of 5 at `other`.
class Text : public TokenSource {
 public:
  Text(int64_t n, int32_t id, int64_t other = -1) : n_(n), id_(id), other_(other) {}
  int64_t n_tokens() const override { return n_; }
  void read(int64_t first, std::span<int32_t> tokens, std::span<uint8_t> flags) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = first + static_cast<int64_t>(i) == other_ ? 5 : id_;
    std::ranges::fill(flags, uint8_t{0});
  }
  uint64_t identity() const override { return 1; }

 private:
  int64_t n_;
  int32_t id_;
  int64_t other_;
};

TEST(DataChecks, streams_are_looked_at_from_their_first_to_their_last_token) {
  const test::ScratchFolder folder;
  const auto tokenizer = words(folder);
  const auto error = [&](std::shared_ptr<const TokenSource> text) {
    return test::error_of([&] { check_known(TokenStream({std::move(text)}), *tokenizer, {}); });
  };
  const int64_t n = 3 * kKnownTokens;
  EXPECT_THAT(error(std::make_shared<Text>(10, 1)), HasSubstr("got 10 tokens that are all"));
  EXPECT_THAT(error(std::make_shared<Text>(n, 1)), HasSubstr("got 1048576 tokens that are all"));
  for (const int64_t known : {int64_t{0}, n - 1})
    EXPECT_EQ(error(std::make_shared<Text>(n, 1, known)), "no error");
}

std::vector<std::string> constants(const std::vector<std::vector<int32_t>>& texts,
                                   std::vector<float> targets) {
  TokenRows rows;
  for (const auto& text : texts) rows.add_row(text, std::vector<int32_t>(text.size()));
  rows.types.clear();
  rows.of_rows = {
      {{.name = "targets", .per = Per::row, .type = HostType::real, .fill = Fill::ignored},
       std::move(targets)}};
  Said said;
  tell_constants(*token_rows(std::move(rows), {}), 4, said.log());
  return said.lines;
}

TEST(DataChecks, labels_and_texts_that_are_all_the_same_are_told) {
  const std::vector<std::vector<int32_t>> same(9, {5, 6});
  std::vector<std::vector<int32_t>> other = same;
  other[7] = {5};
  std::vector<float> ones(9, 1), mixed = ones;
  mixed[8] = 0.5;
  EXPECT_THAT(constants(other, mixed), IsEmpty());
  EXPECT_THAT(constants(other, ones),
              ElementsAre("warning: [data] 'targets' is the same in all of 9 samples, 1: there is "
                          "nothing to tell apart"));
  EXPECT_THAT(constants(same, mixed),
              ElementsAre("warning: [data] all of 9 samples are the same to the model: it can tell "
                          "none apart"));
  // Too few to say.
  EXPECT_THAT(constants({{5}, {5}}, {1, 1}), IsEmpty());
}

std::vector<std::string> inner_padding(const std::vector<std::vector<int32_t>>& texts,
                                       const ModelSpec& spec) {
  TokenRows rows;
  for (const auto& text : texts) rows.add_row(text, std::vector<int32_t>(text.size()));
  rows.types.clear();
  Said said;
  tell_inner_padding(*token_rows(std::move(rows), {}), 6, spec, said.log());
  return said.lines;
}

// Its positions are counted from the padding's: behind such a token transformers counts otherwise.
// What pads a row behind its text is none.
TEST(DataChecks, padding_inside_of_roberta_s_texts_is_told) {
  ModelSpec spec{.kind = ModelKind::roberta};
  spec.pad_token = 7;
  EXPECT_THAT(inner_padding({{0, 5}, {0, 7, 5}, {0, 5, 7}, {7, 7}}, spec),
              ElementsAre("warning: [data] 3 of 4 samples hold the padding's token (7): it is read "
                          "as any other, where transformers counts no position for it"));
  EXPECT_THAT(inner_padding({{0, 5}, {0, 0, 0, 5}}, spec), IsEmpty());
  spec.pad_token = 0;  // which fills rows
  EXPECT_THAT(inner_padding({{1, 5}, {1, 2, 3, 4}}, spec), IsEmpty());
  spec.pad_token = -1;
  EXPECT_THAT(inner_padding({{0, 7}}, spec), IsEmpty());
  spec = {.kind = ModelKind::bert};
  spec.pad_token = 7;
  EXPECT_THAT(inner_padding({{0, 7}}, spec), IsEmpty());
}

}  // namespace
}  // namespace octet::train_data_checks_test
