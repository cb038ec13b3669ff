#include <gtest/gtest.h>

#include "infer/tasks/spans.h"

namespace octet::infer_span_answers_test {
namespace {

// "aa bb cc dd": a token a word; rows are [CLS] question [SEP] two words [SEP].
const std::string kContext = "aa bb cc dd";
const std::vector<TokenSpan> kWords = {{1, 0, 2}, {2, 2, 5}, {3, 6, 8}, {4, 8, 11}};

struct SpanCase {
  std::vector<std::vector<float>> logits;  // of each window: begins, then ends, six places each
  AnswerRule rule = {};
};

std::string answer_of(const SpanCase& one) {
  std::vector<AnswerWindow> windows;
  std::vector<std::vector<float>> pairs;
  for (const auto& logits : one.logits) {
    windows.push_back({.row = {.ids = std::vector<int32_t>(6), .types = {}, .special = {}},
                       .context_begin = 3,
                       .first = 2 * std::ssize(pairs),
                       .n = 2});
    std::vector<float>& own = pairs.emplace_back();
    for (size_t i = 0; i < 6; ++i) own.insert(own.end(), {logits[i], logits[6 + i]});
  }
  const std::vector<SpanLogits> logits(pairs.begin(), pairs.end());
  return best_answer(kContext, kWords, windows, logits, one.rule);
}

TEST(SpanAnswers, are_the_largest_sum_in_the_context_of_all_windows) {
  // Places outside of the context, and an end before its begin, do not count.
  EXPECT_EQ(answer_of({.logits = {{9, 9, 9, 1, 2, 9, 9, 9, 9, 3, 1, 9}}}), "aa");
  EXPECT_EQ(answer_of({.logits = {{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0}}}), "aa bb");
  EXPECT_EQ(answer_of({.logits = {{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0},
                                  {0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 0}}}),
            "dd");
}

TEST(SpanAnswers, have_at_most_so_many_tokens) {
  const std::vector<std::vector<float>> logits = {{0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 2, 0}};
  EXPECT_EQ(answer_of({.logits = logits, .rule = {.max_answer = 2}}), "aa bb");
  EXPECT_EQ(answer_of({.logits = logits, .rule = {.max_answer = 1}}), "bb");
}

TEST(SpanAnswers, are_none_where_cls_of_every_window_is_more_probable) {
  // [CLS] has 5 in the first window and 3 in the second, the best answer 4.
  const std::vector<std::vector<float>> both = {{2, 0, 0, 2, 0, 0, 3, 0, 0, 0, 2, 0},
                                                {1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0}};
  EXPECT_EQ(answer_of({.logits = both, .rule = {.may_be_none = true}}), "aa bb");
  EXPECT_EQ(answer_of({.logits = {both[0]}, .rule = {.may_be_none = true}}), "");
  EXPECT_EQ(answer_of({.logits = {both[0]}, .rule = {.may_be_none = false}}), "aa bb");
  EXPECT_EQ(answer_of({.logits = {}, .rule = {.may_be_none = true}}), "");
}

}  // namespace
}  // namespace octet::infer_span_answers_test
