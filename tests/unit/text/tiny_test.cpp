// Small tokenizers, made by tools/make_tokenizer_goldens.py, against the packages that made them.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/json.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_tiny_test {
namespace {

using Ids = std::vector<int32_t>;

const std::string kTiny = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/";

Json expected_ids() {
  return parse_json(posix_files().read_text(kTiny + "expected.json"), "expected.json");
}

Ids with_ends(const Tokenizer& tokenizer, Ids ids) {
  const Ids prefix = tokenizer.prefix(), suffix = tokenizer.suffix();
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

class TinyTokenizer : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer(posix_files(), kTiny + GetParam());
};

TEST_P(TinyTokenizer, gives_the_ids_of_the_package) {
  const Json golden = expected_ids();
  const Json& texts = golden.at("texts");
  const Json& ids = golden.at("ids").at(GetParam());
  WordCache words;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    const Ids encoded = tokenizer_->encode(text);
    EXPECT_EQ(encoded, ids[i][0].get<Ids>()) << text;
    EXPECT_EQ(with_ends(*tokenizer_, encoded), ids[i][1].get<Ids>()) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.words = &words}), encoded) << text;
    EXPECT_EQ(tokenizer_->encode(text, {.words = &words}), encoded) << "a second time: " << text;
  }
}

TEST_P(TinyTokenizer, a_megabyte_of_one_letter_is_no_special_case) {
  for (const std::string letter : {"e", " ", "é", "\n", "7"}) {
    std::string text;
    while (text.size() < 1'000'000) text += letter;
    const Ids ids = tokenizer_->encode(text);
    // Spaces alone are nothing where extra ones are removed.
    EXPECT_TRUE(!ids.empty() || letter == " ");
    for (const int32_t id : ids) ASSERT_LT(id, tokenizer_->vocab_size());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TinyTokenizer,
                         testing::Values("gpt2.json", "prefix_space.json", "nfc.json", "nfkd.json",
                                         "cl100k.json", "qwen.json", "other_pattern.json",
                                         "digits.json", "spaces.json", "llama.json",
                                         "metaspace.json", "metaspace_whole.json", "sp_bpe.model",
                                         "sp_unigram.model"),
                         [](const auto& row) { return row.param.substr(0, row.param.find('.')); });

std::string random_bytes(std::mt19937& random) {
  // Much that is special, little that is valid.
  static constexpr char kBytes[] = "ab '\r\n\t0\x80\xC3\xA9\xE2\x96\x81\xFF\0<|>";
  constexpr std::string_view kAlphabet(kBytes, sizeof(kBytes) - 1);
  std::string text;
  for (size_t n = random() % 60; n > 0; --n) {
    text +=
        random() % 4 == 0 ? static_cast<char>(random()) : kAlphabet[random() % kAlphabet.size()];
  }
  return text;
}

TEST(TinyTokenizers, byte_level_ones_give_any_bytes_back) {
  for (const char* name : {"gpt2.json", "cl100k.json", "qwen.json", "other_pattern.json",
                           "digits.json", "vocab.json", "sp_bpe.model"}) {
    const auto tokenizer = make_tokenizer(posix_files(), kTiny + name);
    std::mt19937 random(7);
    for (int i = 0; i < 2000; ++i) {
      std::string text = random_bytes(random);
      const bool marks_spaces = std::string_view(name) == "sp_bpe.model";
      if (marks_spaces && text.find("\u2581") != text.npos) continue;
      const Ids ids = tokenizer->encode(text);
      ASSERT_EQ(tokenizer->decode(ids), text) << name << " " << i;
      std::string joined;
      for (const int32_t id : ids) joined += tokenizer->token_bytes(id);
      if (marks_spaces) continue;
      ASSERT_EQ(joined, text) << name << " " << i;
    }
  }
}

TEST(TinyTokenizers, a_cache_changes_nothing) {
  for (const char* name : {"gpt2.json", "llama.json", "sp_bpe.model"}) {
    const auto tokenizer = make_tokenizer(posix_files(), kTiny + name);
    WordCache words;
    std::mt19937 random(11);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_bytes(random);
      ASSERT_EQ(tokenizer->encode(text, {.words = &words}), tokenizer->encode(text)) << name;
    }
  }
}

TEST(TinyTokenizers, vocabulary_and_merges_are_the_same_tokenizer) {
  const auto json = make_tokenizer(posix_files(), kTiny + "gpt2.json");
  const auto vocab = make_tokenizer(posix_files(), kTiny + "vocab.json");
  const auto ranks = make_tokenizer(posix_files(), kTiny + "tiny.tiktoken", {.pattern = "gpt2"});
  const Json texts = expected_ids().at("texts");
  for (const Json& text : texts) {
    const auto plain = text.get<std::string>();
    const Ids ids = json->encode(plain, {.special = SpecialText::plain});
    EXPECT_EQ(vocab->encode(plain), ids);
    Ids shifted = ranks->encode(plain);
    for (int32_t& id : shifted) ++id;  // the special token has id 0 in the others
    EXPECT_EQ(shifted, ids);
  }
}

TEST(TinyTokenizers, a_rank_file_of_unknown_size_needs_a_pattern) {
  EXPECT_EQ(test::error_of([] { make_tokenizer(posix_files(), kTiny + "tiny.tiktoken"); }, kTiny),
            "[tokenizer] DIRtiny.tiktoken: expected --pattern, or a vocabulary of 50256, 100256, "
            "128000 or 151643 tokens whose pattern is known, got 419");
  const auto tokenizer =
      make_tokenizer(posix_files(), kTiny + "tiny.tiktoken", {.pattern = R"(\w+|\W)"});
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("the pattern, given")), "the pattern, given");
}

TEST(TinyTokenizers, special_text_is_parsed_or_plain_as_asked) {
  const auto tokenizer = make_tokenizer(posix_files(), kTiny + "gpt2.json");
  const int32_t end = *tokenizer->special_id("<|end|>");
  EXPECT_EQ(tokenizer->encode("<|end|>"), Ids{end});
  EXPECT_EQ(tokenizer->encode("<|end|>", {.special = SpecialText::parse}), Ids{end});
  const Ids plain = tokenizer->encode("<|end|>", {.special = SpecialText::plain});
  EXPECT_GT(plain.size(), 1u);
  EXPECT_EQ(tokenizer->decode(plain), "<|end|>");
  const auto pieces = make_tokenizer(posix_files(), kTiny + "sp_bpe.model");
  EXPECT_GT(pieces->encode("<s>").size(), 1u);
  EXPECT_EQ(pieces->encode("<s>", {.special = SpecialText::parse}), Ids{*pieces->bos()});
}

TEST(TinyTokenizers, bytes_that_a_normalizer_must_read_are_one_error) {
  for (const char* name : {"nfc.json", "nfkd.json", "sp_unigram.model"}) {
    const auto tokenizer = make_tokenizer(posix_files(), kTiny + name);
    EXPECT_EQ(test::error_of([&] { tokenizer->encode("ab\xff"); }),
              "[tokenizer] expected UTF-8, which this tokenizer normalizes, got byte 0xFF at 2");
  }
}

}  // namespace
}  // namespace octet::text_tiny_test
