// Small tokenizer files that ask for much: one line, in little time and memory.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/regex.h"
#include "text/tokenizer.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"

namespace octet {
namespace {

using test::error_of;
using test::ScratchFolder;

const Json kReplace = {
    {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaa"}};
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
  EXPECT_EQ(error(file("pre_tokenizer", kSplit, 15'000)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Digits"}}, 1000)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Metaspace"}}, 5)),
            at + "64 pre-tokenizers, and 4 of Metaspace, got more");
  EXPECT_EQ(error(file("normalizer", {{"type", "NFC"}}, 15'000)), at + "64 normalizers, got more");
  EXPECT_EQ(error(file("decoder", kReplace, 15'000)).substr(0, at.size()), at);
  EXPECT_EQ(error(file("pre_tokenizer", kSplit, 64)), "no error");
}

TEST_F(HostileFile, makes_texts_at_most_32_times_as_long) {
  const std::string at = "[tokenizer] DIR/t.json: expected replacements that make at most ";
  EXPECT_EQ(error(file("normalizer", kReplace, 9)), at + "1056 bytes of a text, got more");
  EXPECT_EQ(error(file("normalizer", kReplace, 1), std::string(100'000, 'a')), "no error");
  EXPECT_EQ(error(file("normalizer", kReplace, 2), std::string(100'000, 'a')),
            at + "3201024 bytes of a text, got more");
  EXPECT_EQ(error(file("decoder", kReplace, 9)), at + "1056 bytes of a text, got more");
  Json empty = kReplace;
  empty["pattern"] = {{"Regex", "x*"}};
  EXPECT_EQ(error(file("normalizer", empty, 9)), at + "1056 bytes of a text, got more");
  EXPECT_EQ(
      error(file("normalizer", {{"type", "Prepend"}, {"prepend", std::string(5000, 'b')}}, 1)),
      at + "1056 bytes of a text, got more");
  EXPECT_EQ(error(file("pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "ab"}}, 1)),
            "[tokenizer] DIR/t.json: Metaspace: expected a replacement of one character, got 'ab'");
}

TEST_F(HostileFile, has_expressions_of_few_groups) {
  std::string groups;
  for (int i = 0; i < 5000; ++i) groups += "(a)?";
  Json split = kSplit;
  split["pattern"] = {{"Regex", groups}};
  const std::string got = error(file("pre_tokenizer", split, 1));
  EXPECT_NE(got.find("5000 groups, more than 255"), std::string::npos) << got;
}

// All searches of a text have one budget, whichever step and segment they are for.
TEST(Regex, ends_where_its_budget_does) {
  const Regex recursive("(a(?R)?b|.)"), nested("(?:a?){18}[bc]");
  const std::string text(100'000, 'a');
  for (const Regex* regex : {&recursive, &nested}) {
    MatchBudget budget{0.05};
    const std::string got =
        error_of([&] { regex->for_each(text, budget, [](const RegexMatch&) {}); });
    EXPECT_NE(got.find("bounded time"), got.npos) << (regex == &nested) << got;
    EXPECT_LT(budget.seconds, 0);
    EXPECT_GT(budget.seconds, -2);
  }
  MatchBudget budget = match_budget(text.size());
  size_t n = 0;
  Regex("a{1,3}").for_each(text, budget, [&](const RegexMatch&) { ++n; });
  EXPECT_EQ(n, 33'334u);
  EXPECT_GT(budget.seconds, 2.5);
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
}  // namespace octet
