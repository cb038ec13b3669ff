// The parts of a tokenizer, each against a slower or simpler account of itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/files.h"
#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"
#include "text/unicode.h"
#include "text/word_pattern.h"
#include "unit/base/error_of.h"

namespace octet::text_parts_test {
namespace {

using Words = std::vector<std::string>;
using test::error_of;

std::string random_text(std::mt19937& random) {
  constexpr int32_t kCodes[] = {'a',  'Z',  's',  't',   'r',    'e',    'l',    '\'',     '\'',
                                '1',  '2',  ' ',  ' ',   '\n',   '\r',   '\t',   '.',      '!',
                                0xE9, 0xA0, 0x85, 0x17F, 0x2028, 0x4E00, 0x301,  0x661,    0x1F600,
                                0xBD, 'S',  'D',  'v',   0x3000, 0x200B, 0x16EE, 0x10FFFF, 0x212A};
  std::string text;
  for (size_t n = random() % 30; n > 0; --n)
    append_utf8(text, kCodes[random() % std::size(kCodes)]);
  return text;
}

Words words_of(const Regex& regex, std::string_view text) {
  Words words;
  MatchBudget budget = match_budget(text.size());
  regex.for_each(text, budget, [&](const RegexMatch& match) {
    words.emplace_back(text.substr(match.begin, match.end - match.begin));
  });
  return words;
}

TEST(WordExpression, cuts_as_its_tokenizer_does) {
  const struct {
    std::string_view name, text;
    Words words;
  } rows[] = {
      {"gpt2", "I'll DON'T", {"I", "'ll", " DON", "'", "T"}},
      {"gpt2", "a  b\n\n c", {"a", " ", " b", "\n\n", " c"}},
      {"gpt2", "x12345 !?\n ", {"x", "12345", " !?", "\n "}},
      {"cl100k", "I'll DON'T", {"I", "'ll", " DON", "'T"}},
      {"cl100k", "it'\u017F", {"it", "'\u017F"}},
      {"cl100k", "12345 (a) !\n\n  b", {"123", "45", " (", "a", ")", " !\n\n", " ", " b"}},
      {"llama3", " \n \r\n  x", {" \n \r\n", " ", " x"}},
      {"qwen", "12 3\u0661", {"1", "2", " ", "3", "\u0661"}},
      {"qwen", "a\u0085\u3000b", {"a", "\u0085", "\u3000b"}},
  };
  for (const auto& [name, text, words] : rows) {
    EXPECT_EQ(words_of(Regex(word_expression(name)), text), words) << name << ": " << text;
  }
  EXPECT_EQ(word_expression("[a-z]+"), "[a-z]+");
}

TEST(WordExpression, leaves_nothing_between_words) {
  std::mt19937 random(3);
  for (const std::string_view name : {"gpt2", "cl100k", "qwen"}) {
    const Regex regex(word_expression(name));
    for (int i = 0; i < 20'000; ++i) {
      const std::string text = random_text(random);
      std::string joined;
      for (const std::string& word : words_of(regex, text)) joined += word;
      ASSERT_EQ(joined, text) << name;
    }
  }
}

// More white space than the library walks by itself in one search.
TEST(WordExpression, takes_words_as_long_as_the_text) {
  const std::string spaces(20'000'000, ' ');
  EXPECT_EQ(words_of(Regex(kCl100kWords), "x" + spaces + "y"),
            (Words{"x", spaces.substr(1), " y"}));
}

// Expressions and texts of tools/make_regex_goldens.py.
TEST(Oniguruma, matches_what_the_package_does) {
  const std::string path = std::string(OCTET_SOURCE_DIR) + "/tests/fixtures/tokenizers/regex.json";
  const Json golden = parse_json(posix_files().read_text(path), path);
  for (const Json& row : golden.at("rows")) {
    const auto pattern = row[0].get<std::string>();
    Normalizer replace;
    replace.add(ReplaceMatches{
        std::make_shared<const Regex>(pattern, RegexLimits{}, RegexSyntax::oniguruma), "#"});
    for (size_t i = 0; i < golden.at("texts").size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      const std::string expected = row[1][i].is_null() ? text : row[1][i].get<std::string>();
      EXPECT_EQ(replace.apply(text), expected) << pattern;
    }
  }
}

TEST(Oniguruma, what_is_not_translated_is_refused_by_name) {
  const std::pair<std::string, std::string> rows[] = {
      {R"(\G)", R"(an escape '\G')"},
      {R"(\X)", R"(an escape '\X')"},
      {R"(\y)", R"(an escape '\y')"},
      {R"(\Qa\E)", R"(an escape '\Q')"},
      {R"(\cA)", R"(an escape '\c')"},
      {R"(\xe9)", "a byte 'e9' above 7F"},
      {R"(\pL)", R"('\p' without braces)"},
      {R"(\p{Script=Han})", "a property 'Script=Han'"},
      {R"((a)\g<1>)", R"(an escape '\g')"},
      {"(?s:.)", "a group '(?s'"},
      {"(?P<n>a)", "a group '(?P'"},
      {"(?~a)", "a group '(?~'"},
      {"(a)(?(1)b)", "a group '(?('"},
      {"(*FAIL)", "a callout '(*'"},
      {"(?i:st)", "(?i) of characters that U+FB05 folds to"},
      {"(?i:\u00df)", "(?i) of characters that U+00DF folds to"},
      {"(?i:[\u00df])", "(?i) of a class that has U+00DF"},
      {R"((?i:[\p{Lu}]))", R"((?i) of '\p{Lu}' in a class)"},
      {"(?i:(a)\\1)", "a reference to a group under (?i)"},
      {"a{2,1}", "a quantifier {2,1}"},
      {"a+?+", "a quantifier behind a lazy or possessive one"},
      {R"([\d-x])", "a range behind a set in a class"},
      {"[a&&]", "an empty part of a class"},
      {"[[:foo:]]", "'[:foo' in a class"},
  };
  const auto error = [](const std::string& pattern) {
    return error_of([&] { Regex(pattern, RegexLimits{}, RegexSyntax::oniguruma); });
  };
  for (const auto& [pattern, what] : rows)
    EXPECT_EQ(error(pattern), fmt::format("expected a regular expression, got '{}': {} is not "
                                          "supported",
                                          pattern, what));
  for (const char* pattern : {"a)", "(a", "[a", "*", "a|+", "^*", "\\", "[\\", "(?#a", "\\1",
                              "(?<n>a)(b)\\1", "\\p{No_Such}", "\\p{L", "\\x{110000}", "[z-a]"})
    EXPECT_NE(error(pattern), "no error") << pattern;
  EXPECT_NE(error(std::string(300, '(') + std::string(300, ')')).find("200 groups"),
            std::string::npos);
}

// Merges the lowest pair, the leftmost of equals, one at a time.
std::vector<int32_t> merged_slowly(std::vector<int32_t> ids,
                                   const std::map<std::pair<int32_t, int32_t>, int32_t>& ranks) {
  while (true) {
    size_t best = ids.size();
    int32_t lowest = INT32_MAX;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = ranks.find({ids[i], ids[i + 1]});
      if (it == ranks.end() || it->second >= lowest) continue;
      lowest = it->second;
      best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = 100 + lowest;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerges, merges_as_the_textbook_does_for_words_of_any_length) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    BpeMerges merges;
    std::map<std::pair<int32_t, int32_t>, int32_t> ranks;
    for (int32_t rank = 0; rank < 30; ++rank) {
      const auto side = [&] {
        const auto token = static_cast<int32_t>(random() % 6);
        return token < 3 || rank == 0 ? token % 3
                                      : 100 + static_cast<int32_t>(random() % 30) % rank;
      };
      const int32_t left = side(), right = side();
      if (!ranks.emplace(std::pair(left, right), rank).second) continue;
      ASSERT_TRUE(merges.add(left, right, static_cast<uint32_t>(rank), 100 + rank));
      EXPECT_FALSE(merges.add(left, right, 1000, 7));
    }
    MergeMemory memory;
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{2}, size_t{40}, size_t{64}, size_t{65}, size_t{300}}) {
      std::vector<int32_t> ids(n);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 3);
      const std::vector<int32_t> expected = merged_slowly(ids, ranks);
      merges.merge(ids, memory);
      ASSERT_EQ(ids, expected) << round << " " << n;
    }
  }
}

Words split(const PreTokenizerStep& step, std::string_view text) {
  PreTokenizer words;
  words.add(step);
  Words found;
  MatchBudget budget = match_budget(text.size());
  words.split(text, true, budget, [&](std::string_view word) { found.emplace_back(word); });
  return found;
}

TEST(PreTokenizer, a_split_does_with_matches_as_it_is_told) {
  const auto by = [&](SplitBehavior behavior, bool invert = false) {
    return split(SplitMatches{nullptr, "-", behavior, invert}, "the-final--countdown-");
  };
  EXPECT_EQ(by(SplitBehavior::removed), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(by(SplitBehavior::isolated), (Words{"the", "-", "final", "-", "-", "countdown", "-"}));
  EXPECT_EQ(by(SplitBehavior::contiguous), (Words{"the", "-", "final", "--", "countdown", "-"}));
  EXPECT_EQ(by(SplitBehavior::merged_with_previous), (Words{"the-", "final-", "-", "countdown-"}));
  EXPECT_EQ(by(SplitBehavior::merged_with_next), (Words{"the", "-final", "-", "-countdown", "-"}));
  EXPECT_EQ(by(SplitBehavior::removed, true), (Words{"-", "-", "-", "-"}));
}

TEST(PreTokenizer, the_first_word_stays_the_first_behind_a_mark) {
  PreTokenizer words;
  words.add(MarkSpaces{.mark = "-", .prepend = PrependScheme::never, .split = true});
  words.add(MarkSpaces{.mark = "_", .prepend = PrependScheme::first, .split = true});
  Words found;
  MatchBudget budget = match_budget(5);
  words.split("ab cd", true, budget, [&](std::string_view word) { found.emplace_back(word); });
  EXPECT_EQ(found, (Words{"_ab", "-cd"}));
}

Words segments(const AddedTokenFinder& finder, std::string_view text) {
  Words found;
  finder.for_each_segment(text, [&](const Segment& segment) {
    found.push_back(segment.id < 0 ? std::string(segment.text)
                                   : fmt::format("{}:{}", segment.id, segment.text));
  });
  return found;
}

TEST(AddedTokens, the_leftmost_and_longest_counts) {
  AddedTokenFinder finder;
  finder.add({.id = 1, .content = "<a>"});
  finder.add({.id = 2, .content = "<a><b>"});
  finder.add({.id = 3, .content = "x"});
  finder.add({.id = 4, .content = "word", .single_word = true});
  finder.add({.id = 5, .content = "<m>", .lstrip = true, .rstrip = true});
  EXPECT_EQ(segments(finder, ""), Words{});
  EXPECT_EQ(segments(finder, "<a><b><a>b"), (Words{"2:<a><b>", "1:<a>", "b"}));
  EXPECT_EQ(segments(finder, "a x <"), (Words{"a ", "3:x", " <"}));
  EXPECT_EQ(segments(finder, "word sword word."), (Words{"4:word", " sword ", "4:word", "."}));
  EXPECT_EQ(segments(finder, "a \u00a0<m> \n b"), (Words{"a", "5: \u00a0<m> \n ", "b"}));
}

// As the tokenizers package has it, which looks on behind a token's content.
TEST(AddedTokens, the_space_that_a_token_takes_may_begin_the_next_one) {
  AddedTokenFinder finder;
  finder.add({.id = 1, .content = "<m>", .rstrip = true});
  finder.add({.id = 2, .content = " a", .rstrip = true});
  finder.add({.id = 3, .content = " b", .lstrip = true});
  finder.add({.id = 4, .content = "\n"});
  EXPECT_EQ(segments(finder, "<m> a ab"), (Words{"1:<m> ", "2: a ", "2: a", "b"}));
  EXPECT_EQ(segments(finder, "<m>  b"), (Words{"1:<m>  ", "3: b"}));
  EXPECT_EQ(segments(finder, "<m> \n c"), (Words{"1:<m> \n ", "4:\n", " c"}));
}

std::string normalized(NormalForm form, std::string_view text) {
  std::string out;
  UnicodeNormalizer(form).append(text, out);
  return out;
}

TEST(UnicodeNormalizer, composes_and_decomposes_in_canonical_order) {
  EXPECT_EQ(normalized(NormalForm::nfc, "plain"), "plain");
  EXPECT_EQ(normalized(NormalForm::nfc, "xe\u0301y"), "x\u00e9y");
  EXPECT_EQ(normalized(NormalForm::nfd, "x\u00e9y"), "xe\u0301y");
  // Dot below (class 220) goes before the acute (230).
  EXPECT_EQ(normalized(NormalForm::nfd, "a\u0301\u0323"), "a\u0323\u0301");
  EXPECT_EQ(normalized(NormalForm::nfc, "a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(normalized(NormalForm::nfc, "\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(normalized(NormalForm::nfd, "\uac01"), "\u1100\u1161\u11a8");
  EXPECT_EQ(normalized(NormalForm::nfc, "\uac00\u11a8"), "\uac01");
  EXPECT_EQ(normalized(NormalForm::nfc, "\u212b"), "\u00c5");        // Angstrom
  EXPECT_EQ(normalized(NormalForm::nfc, "\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(normalized(NormalForm::nfkc, "\ufb01\u00bd"), "fi1\u20442");
  EXPECT_EQ(normalized(NormalForm::nfkd, "\ufdfa").size(), 33u);  // the longest: 18 characters
}

TEST(UnicodeNormalizer, a_long_run_of_marks_is_sorted_in_time) {
  std::string marks = "a";
  for (int i = 0; i < 100'000; ++i) marks += "\u0301\u0323";
  const std::string out = normalized(NormalForm::nfc, marks);
  EXPECT_TRUE(out.starts_with("\u1ea1\u0323\u0323"));
  EXPECT_TRUE(out.ends_with("\u0301\u0301"));
}

TEST(Unicode, decodes_what_is_utf8_and_nothing_else) {
  std::string text;
  for (const int32_t code : {0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x10FFFF}) {
    append_utf8(text, code);
  }
  EXPECT_EQ(find_invalid_utf8(text), text.npos);
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC3", "\xE0\x80\x80", "\xED\xA0\x80",
                                "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF8", "\xE2\x96"}) {
    EXPECT_EQ(find_invalid_utf8("a" + bad), 1u);
    EXPECT_EQ(decode_utf8(bad, 0).code, kInvalid);
    EXPECT_EQ(decode_utf8(bad, 0).length, 1u);
  }
}

}  // namespace
}  // namespace octet::text_parts_test
