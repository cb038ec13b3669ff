// Figures by hand, and those that sklearn 1.9, scipy 1.17 and SQuAD's evaluate-v2.0.py give.
#include "infer/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "data/rows.h"
#include "infer/evaluate.h"

namespace octet::infer_metrics_test {
namespace {

using Labels = std::vector<int32_t>;
constexpr double kRounding = 1e-13;  // of sums of 200 items in double

// 200 labels of five classes, and predictions of six that are right in three of five places.
struct Classes {
  Labels labels, predicted;
  Classes() {
    for (int i = 0; i < 200; ++i) {
      labels.push_back((i * i * 7 + i / 3) % 5);
      predicted.push_back(i * 37 % 10 < 6 ? labels.back() : i * 11 % 6);
    }
  }
  // 1 for classes 3 and more, else 0.
  static Labels binary(Labels of) {
    for (int32_t& label : of) label = label > 2 ? 1 : 0;
    return of;
  }
};

TEST(F1, counts_hits_twice_and_both_kinds_of_errors_once) {
  const Labels labels = {1, 1, 1, 0, 0}, predicted = {1, 0, 1, 1, 0};
  EXPECT_DOUBLE_EQ(f1(labels, predicted), 2 * 2.0 / (2 * 2 + 1 + 1));
  EXPECT_DOUBLE_EQ(f1(labels, predicted, 0), 2 * 1.0 / (2 * 1 + 1 + 1));
  EXPECT_EQ(f1(labels, predicted, 7), 0);
  EXPECT_EQ(f1({}, {}), 0);
}

TEST(F1, is_that_of_sklearn) {
  const Classes of;
  const Labels labels = Classes::binary(of.labels), predicted = Classes::binary(of.predicted);
  EXPECT_NEAR(f1(labels, predicted), 0.6308724832214765, kRounding);
  EXPECT_NEAR(f1(labels, predicted, 0), 0.7808764940239044, kRounding);
}

TEST(MatthewsCorrelation, of_two_classes_is_the_formula_and_of_more_that_of_sklearn) {
  const Labels labels = {1, 1, 1, 0, 0}, predicted = {1, 0, 1, 1, 0};
  EXPECT_DOUBLE_EQ(matthews_correlation(labels, predicted),
                   (2 * 1 - 1 * 1) / std::sqrt(3.0 * 3 * 2 * 2));
  const Classes of;
  EXPECT_NEAR(matthews_correlation(of.labels, of.predicted), 0.5794791945015088, kRounding);
  EXPECT_NEAR(matthews_correlation(Classes::binary(of.labels), Classes::binary(of.predicted)),
              0.41842287529140865, kRounding);
  EXPECT_EQ(matthews_correlation(labels, labels), 1);
  EXPECT_EQ(matthews_correlation(Labels{0, 1}, Labels{1, 0}), -1);
  EXPECT_EQ(matthews_correlation(Labels{0, 1}, Labels{1, 1}), 0);  // one prediction alone
  EXPECT_EQ(matthews_correlation({}, {}), 0);
}

TEST(Correlations, are_those_of_scipy_with_ties_and_far_from_zero) {
  std::vector<double> x, far, y;
  for (int i = 0; i < 200; ++i) {
    x.push_back(i * 37 % 41);
    far.push_back(1e8 + x.back());
    y.push_back(i * 29 % 17 + 0.5 * x.back());
  }
  EXPECT_NEAR(*pearson(x, y), 0.7948755086190075, kRounding);
  EXPECT_NEAR(*pearson(far, y), 0.7948755086190075, 1e-9);  // means round at 1e8
  EXPECT_NEAR(*spearman(x, y), 0.7905230929212788, kRounding);
  EXPECT_NEAR(*spearman(far, y), 0.7905230929212788, kRounding);
}

TEST(Correlations, by_hand) {
  using Values = std::vector<double>;
  EXPECT_DOUBLE_EQ(*pearson(Values{1, 2, 3}, Values{1, 3, 2}), 0.5);
  // Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
  EXPECT_DOUBLE_EQ(*spearman(Values{0, 7, 7, 100}, Values{-5, 0, 1, 2}), 4.5 / std::sqrt(22.5));
  EXPECT_DOUBLE_EQ(*spearman(Values{1, 2, 3}, Values{9, 0, -1e300}), -1);
  EXPECT_EQ(pearson(Values{1, 2}, Values{3, 3}), std::nullopt);
  EXPECT_EQ(pearson(Values{0.1, 0.1, 0.1}, Values{1, 2, 3}), std::nullopt);
  EXPECT_EQ(pearson(Values{1}, Values{1}), std::nullopt);
  EXPECT_EQ(spearman(Values{}, Values{}), std::nullopt);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(pearson(Values{1, nan}, Values{1, 2}), std::nullopt);
  EXPECT_EQ(spearman(Values{1, 2}, Values{HUGE_VAL, 2}), std::nullopt);
}

// Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4 of those that have a target.
TEST(Correlations, an_evaluation_ranks_what_it_predicts_of_rows_with_targets) {
  const LossTerm term{
      .counted = "targets", .metrics = {"squared_error", "prediction"}, .compared = "prediction"};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  RunEvaluation all{.metrics = {{.name = "squared_error", .sum = {2, 4}},
                                {.name = "prediction",
                                 .sum = {114, 4},
                                 .numbers = {{0, -5}, {9, nan}, {7, 0}, {100, 2}, {7, 1}}}}};
  const auto figures = all.figures(std::span(&term, 1));
  ASSERT_EQ(figures.size(), 1u);
  EXPECT_EQ(figures[0].first, "spearman");
  EXPECT_DOUBLE_EQ(figures[0].second, 4.5 / std::sqrt(22.5));
  for (PredictedNumber& one : all.metrics[1].numbers) one.predicted = 3;
  EXPECT_TRUE(all.figures(std::span(&term, 1)).empty());  // not defined
}

// Two of the three rows that count; of 3 labels and 3 predicted ones 2 are right.
TEST(LabelSets, are_right_as_a_whole_and_one_by_one) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {3, -1, 2, -5, -5, -5, 1, 0, -2, 1, 1, 1};
  const std::vector<float> targets = {1, 0, 1, 0, 0, nan, 0, 0, 1, nan, nan, nan};
  const LabelSetScore score = score_label_sets(logits, targets, 3);
  EXPECT_DOUBLE_EQ(score.subset_accuracy, 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.micro_f1, 4.0 / 6);
  EXPECT_EQ(score_label_sets({}, {}, 3).micro_f1, 0);
  const LossTerm term{.counted = "targets",
                      .metrics = {"nll", "correct", "logit"},
                      .compared = "logit",
                      .n_labels = 3};
  RunEvaluation all{.metrics = {{.name = "nll", .sum = {2, 8}},
                                {.name = "correct", .sum = {6, 8}},
                                {.name = "logit", .sum = {0, 8}}}};
  for (size_t i = 0; i < logits.size(); ++i)
    all.metrics[2].numbers.push_back({logits[i], targets[i]});
  const Figures expected = {
      {"accuracy", 0.75}, {"subset_accuracy", 2.0 / 3}, {"micro_f1", 4.0 / 6}};
  EXPECT_EQ(all.figures(std::span(&term, 1)), expected);
}

TEST(TopK, takes_the_first_of_equal_classes_and_leaves_ignored_labels_out) {
  const std::vector<float> logits = {1,  3,  3,  0,  //
                                     1,  3,  3,  0,  //
                                     -1, -1, -1, -1};
  EXPECT_EQ(top_k(logits, Labels{1, 2, 0}, 1).n_right, 2);
  EXPECT_EQ(top_k(logits, Labels{1, 2, 0}, 2).n_right, 3);
  EXPECT_EQ(top_k(logits, Labels{0, 0, 3}, 2).n_right, 0);
  const Hits hits = top_k(logits, Labels{1, kIgnoredLabel, 3}, 1);
  EXPECT_EQ(hits.n, 2);
  EXPECT_EQ(hits.share(), 0.5);
  EXPECT_EQ(top_k({}, {}, 5).share(), 0);
  std::vector<float> with_nan = logits;
  with_nan[3] = std::nanf("");
  EXPECT_EQ(top_k(with_nan, Labels{1, 1, 0}, 4).n_right, 2);
}

TEST(TopK, is_that_of_sklearn) {
  std::vector<float> logits, apart;
  Labels labels;
  for (int i = 0; i < 50; ++i) {
    labels.push_back(i * 5 % 6);
    for (int c = 0; c < 6; ++c) {
      logits.push_back(static_cast<float>((i * 31 + c * 17 + i * c) % 23));
      apart.push_back(logits.back() + 0.01f * static_cast<float>(c));  // sklearn takes the last
    }
  }
  const struct {
    int64_t k, n_first, n_sklearn;
  } rows[] = {{1, 7, 6}, {2, 14, 12}, {5, 38, 37}, {6, 50, 50}};
  for (const auto& [k, n_first, n_sklearn] : rows) {
    EXPECT_EQ(top_k(logits, labels, k).n_right, n_first) << k;
    EXPECT_EQ(top_k(apart, labels, k).n_right, n_sklearn) << k;
  }
}

TEST(Answers, are_normalized_as_squad_does) {
  const struct {
    const char *answer, *normalized;
  } rows[] = {{"The  Cat's hat, a man", "cats hat man"},
              {"an\u2014a the_a A\u00a0b", "\u2014 thea b"},
              {"\u00c1 la a\u0301 theory", "\u00e1 la \u0301 theory"},
              {"", ""},
              {"the", ""},
              {"U.S.A.", "usa"},
              {"x\x1cy\tz", "x y z"},
              {"\u65e5\u672c the \u8a9e", "\u65e5\u672c \u8a9e"},
              {"a-n the-", ""},
              {"\xc3 A the \xe4", "\xc3 \xe4"}};  // no UTF-8
  for (const auto& [answer, normalized] : rows) {
    EXPECT_EQ(normalized_answer(answer), normalized) << answer;
  }
}

TEST(Answers, score_the_best_of_the_right_ones) {
  const auto score = [](const char* predicted, const std::vector<std::string>& answers) {
    const AnswerScore of = score_answer(predicted, answers);
    return std::pair(of.exact, of.f1);
  };
  using Score = std::pair<double, double>;
  EXPECT_EQ(score("the big cat cat", {"cat cat sat on a mat"}), Score(0, 0.5));
  EXPECT_EQ(score("a b c", {"B c d"}), Score(0, 0.8));
  EXPECT_EQ(score("a b c", {"x", "B c d", "B, c."}), Score(1, 1));
  EXPECT_EQ(score("", {"the"}), Score(1, 1));
  EXPECT_EQ(score("x", {""}), Score(0, 0));
  EXPECT_EQ(score("", {}), Score(1, 1));  // a question without an answer
  EXPECT_EQ(score("x", {}), Score(0, 0));
}

}  // namespace
}  // namespace octet::infer_metrics_test
