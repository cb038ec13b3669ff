// Small tokenizer files that ask for much: one line, in little time and memory.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/normalizer.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet::text_hostile_files_test {
namespace {

using test::error_of;
using test::ScratchFolder;

// Replacement of each a by so many letters.
Json replace(size_t n) {
  return {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(n, 'a')}};
}
const Json kSplit = {{"type", "Split"}, {"pattern", {{"String", "z"}}}, {"behavior", "Isolated"}};

class HostileFile : public testing::Test {
 protected:
  // A tokenizer of two letters with `n` steps of one part.
  std::string file(const std::string& part, const Json& step, int n) {
    const std::string list = part == "pre_tokenizer" ? "pretokenizers" : part + "s";
    Json json = {
        {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}}};
    json[part] = {{"type", "Sequence"}, {list, Json::array()}};
    for (int i = 0; i < n; ++i) json[part][list].push_back(step);
    return folder_.put("t.json", json.dump());
  }
  std::string error(const std::string& path, const std::string& text = "a") {
    return error_of([&] { make_tokenizer(posix_files(), path)->encode(text); }, folder_.path());
  }
  ScratchFolder folder_;
};

TEST_F(HostileFile, has_at_most_64_steps_of_a_kind) {
  const std::string at = "[tokenizer] DIR/t.json: expected at most ";
  EXPECT_EQ(error(file("pre_tokenizer", kSplit, 65)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Digits"}}, 65)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Metaspace"}}, 5)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("normalizer", {{"type", "NFC"}}, 65)), at + "64 normalizers, got more");
  EXPECT_EQ(error(file("decoder", replace(1), 65)).substr(0, at.size()), at);
  EXPECT_EQ(error(file("pre_tokenizer", kSplit, 64)), "no error");
  EXPECT_EQ(error(file("normalizer", {{"type", "NFC"}}, 64)), "no error");
}

TEST_F(HostileFile, makes_texts_at_most_32_times_as_long) {
  const std::string at = "[tokenizer] DIR/t.json: expected replacements that make at most ";
  const std::string text(1000, 'a');
  EXPECT_EQ(error(file("normalizer", replace(33), 1), text), "no error");
  EXPECT_EQ(error(file("normalizer", replace(34), 1), text),
            at + "33024 bytes of a text, got more");
  Json empty = replace(40);
  empty["pattern"] = {{"Regex", "x*"}};
  EXPECT_EQ(error(file("normalizer", empty, 1), text), at + "33024 bytes of a text, got more");
  EXPECT_EQ(
      error(file("normalizer", {{"type", "Prepend"}, {"prepend", std::string(1056, 'b')}}, 1)),
      at + "1056 bytes of a text, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, 1)),
            "[tokenizer] DIR/t.json: Metaspace: expected a replacement of one character, got 'ab'");
}

TEST(Normalizer, ends_where_a_text_grows_beyond_its_limits) {
  Normalizer normalizer({.max_steps = 2, .max_growth = 2, .growth_allowance = 3});
  normalizer.add(ReplaceText{"a", "bb"});
  EXPECT_EQ(normalizer.apply("aaa"), "bbbbbb");
  normalizer.add(ReplaceText{"b", "cc"});
  EXPECT_EQ(error_of([&] { normalizer.apply("aaa"); }),
            "expected replacements that make at most 9 bytes of a text, got more");
  EXPECT_EQ(error_of([&] { normalizer.add(StripSpace{}); }),
            "expected at most 2 normalizers, got more");
}

TEST_F(HostileFile, has_expressions_of_few_groups) {
  std::string groups;
  for (int i = 0; i < 255; ++i) groups += "(b)";
  Json split = kSplit;
  split["pattern"] = {{"Regex", groups}};
  EXPECT_EQ(error(file("pre_tokenizer", split, 1)), "no error");
  split["pattern"] = {{"Regex", groups + "(b)"}};
  const std::string got = error(file("pre_tokenizer", split, 1));
  EXPECT_NE(got.find("256 groups, more than 255"), std::string::npos) << got;
}

TEST(Regex, is_bounded_in_length_and_groups) {
  const RegexLimits limits{.max_pattern_bytes = 6, .max_groups = 2};
  EXPECT_EQ(error_of([&] { Regex("(a)(b)", limits); }), "no error");
  EXPECT_EQ(error_of([&] { Regex("(a)(b)c", limits); }),
            "expected a regular expression, got '(a)(b)c': longer than 6 bytes");
  EXPECT_EQ(error_of([&] { Regex("(a)(b)", {.max_groups = 1}); }),
            "expected a regular expression, got '(a)(b)': 2 groups, more than 1");
}

TEST(Regex, ends_where_a_search_takes_more_steps_than_its_limit) {
  const std::string text(12, 'a');
  const auto search = [&](const RegexLimits& limits) {
    MatchBudget budget = match_budget(text.size());
    return error_of(
        [&] { Regex("(?:a|aa)+[bc]", limits).for_each(text, budget, [](const RegexMatch&) {}); });
  };
  EXPECT_EQ(search({}), "no error");
  const std::string got = search({.max_steps = 20, .steps_per_byte = 0});
  EXPECT_NE(got.find("bounded time"), got.npos) << got;
}

// All searches of a text have one budget, whichever step and segment they are for.
TEST(Regex, ends_where_its_budget_does) {
  const std::string text(3'000'000, 'a');
  const Regex letters("a{1,3}");
  MatchBudget none{0};
  const std::string got = error_of([&] { letters.for_each(text, none, [](const RegexMatch&) {}); });
  EXPECT_NE(got.find("it took too long"), got.npos) << got;
  EXPECT_LT(none.seconds, 0);
  EXPECT_GT(none.seconds, -2);
  MatchBudget budget = match_budget(text.size());
  size_t n = 0;
  letters.for_each(text, budget, [&](const RegexMatch&) { ++n; });
  EXPECT_EQ(n, 1'000'000u);
  EXPECT_GT(budget.seconds, 2.5);
  EXPECT_EQ(match_budget(10, {.seconds = 2, .seconds_per_byte = 0.5}).seconds, 7);
}

TEST(Regex, finds_the_same_however_far_matches_are_apart) {
  for (const size_t gap :
       {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{1000}}) {
    for (const std::string filler : {"-", "\u00e9", "\xff", "\x80", "\xe4\xb8"}) {
      std::string text;
      std::vector<size_t> expected;
      for (int i = 0; i < 4; ++i) {
        while (text.size() < (gap + 3) * static_cast<size_t>(i)) text += filler;
        text += "|";  // whatever the filler is cut to
        expected.push_back(text.size());
        text += "ab";
      }
      std::vector<size_t> found;
      MatchBudget budget = match_budget(text.size());
      Regex("(?<=\\|)ab").for_each(text, budget, [&](const RegexMatch& m) {
        found.push_back(m.begin);
      });
      EXPECT_EQ(found, expected) << gap << " of " << filler;
    }
  }
}

}  // namespace
}  // namespace octet::text_hostile_files_test
