// Places of tokens in a text, against the package `tokenizers`: made by
// tools/make_word_piece_goldens.py.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_spans_test {
namespace {

const std::string kPieces = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/word_pieces/";

Json golden_file(const std::string& name) {
  return parse_json(posix_files().read_text(kPieces + name), name);
}

// Span as the package tells it of tokens that have a space in front.
TokenSpan trimmed(TokenSpan span, const std::string& text) {
  const auto is_space = [&](int64_t at) {
    return text[static_cast<size_t>(at)] == ' ' || text[static_cast<size_t>(at)] == '\n' ||
           text[static_cast<size_t>(at)] == '\t' || text[static_cast<size_t>(at)] == '\r';
  };
  while (span.begin < span.end && is_space(span.begin)) ++span.begin;
  while (span.begin < span.end && is_space(span.end - 1)) --span.end;
  return span;
}

class Spans : public testing::TestWithParam<std::string> {};

TEST_P(Spans, stand_where_the_package_says) {
  const Json spans = golden_file("spans.json");
  Json texts = golden_file("expected.json").at("texts");
  texts.push_back(spans.at("context"));
  const auto tokenizer = make_tokenizer(posix_files(), kPieces + GetParam() + ".json");
  const Json& places = spans.at("tokenizers").at(GetParam()).at("places");
  ASSERT_EQ(texts.size(), places.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    std::vector<TokenSpan> got = tokenizer->encode_spans(text), expected;
    std::vector<int32_t> ids;
    for (const TokenSpan& span : got) ids.push_back(span.id);
    EXPECT_EQ(ids, tokenizer->encode(text)) << text;
    for (const Json& place : places[i]) expected.push_back({place[0], place[1], place[2]});
    ASSERT_EQ(got.size(), expected.size()) << text;
    for (size_t token = 0; token < got.size(); ++token) {
      if (GetParam() == "roberta") {
        // The package keeps the end, or the begin, of white space alone.
        got[token] = trimmed(got[token], text);
        if (got[token].begin == got[token].end) continue;
      }
      EXPECT_EQ(std::tie(got[token].begin, got[token].end),
                std::tie(expected[token].begin, expected[token].end))
          << "token " << token << " of " << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, Spans,
                         testing::Values("uncased", "cased", "accents", "steps", "bare", "roberta"),
                         [](const auto& info) { return info.param; });

TEST(Spans, other_kinds_of_tokenizers_say_that_they_have_none) {
  EXPECT_EQ(test::error_of([] { byte_tokenizer()->encode_spans("text"); }),
            "[tokenizer] expected one that says where in a text its tokens stand, got another kind "
            "(tokenizer.json and vocab.txt do)");
}

}  // namespace
}  // namespace octet::text_spans_test
