// Figures of evaluation: how far predictions agree with labels. All sums are in double, in the
// order of the items; deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace octet {

double mean(std::span<const double> values);

// Right ones of n items.
struct Hits {
  int64_t n_right = 0, n = 0;
  double share() const { return n == 0 ? 0 : static_cast<double>(n_right) / n; }
};

// Top-k accuracy. An item is right where fewer than k classes come before its label: those with a
// larger logit, and those of lower index with an equal one, so that k = 1 is the first argmax.
//   logits: [n, classes], row-major    labels: [n], in [0, classes) or kIgnoredLabel, which is no
//   item. An item with a NaN is wrong. CHECKs the sizes, the labels and 1 <= k.
Hits top_k(std::span<const float> logits, std::span<const int32_t> labels, int64_t k);

// F1 = 2 tp / (2 tp + fp + fn) of the class `positive`; 0 where it is neither label nor prediction.
//   labels, predicted: [n], equally long (CHECKed), here and below
// Source: van Rijsbergen 1979; sklearn.metrics.f1_score(average="binary").
double f1(std::span<const int32_t> labels, std::span<const int32_t> predicted,
          int32_t positive = 1);

// Matthews' correlation of any number of classes, in [-1, 1]: with n items, c right ones, t_k of
// class k by label and p_k by prediction,
//   (c n - sum_k t_k p_k) / sqrt((n^2 - sum_k p_k^2) (n^2 - sum_k t_k^2)),
// and 0 where the denominator is. Of two classes this is
// (tp tn - fp fn) / sqrt((tp + fp)(tp + fn)(tn + fp)(tn + fn)).
// Source: Matthews 1975; Gorodkin 2004; sklearn.metrics.matthews_corrcoef.
double matthews_correlation(std::span<const int32_t> labels, std::span<const int32_t> predicted);

// Scores of rows that each have any of some labels.
struct LabelSetScore {
  double subset_accuracy = 0;  // the share of rows whose labels are all right
  double micro_f1 = 0;         // 2 tp / (2 tp + fp + fn) over all rows and labels; 0 without any
};
// Predicted are labels with logits above 0, right are those with targets above 0.5. A target that
// is NaN is left out, and a row of such.
//   logits, targets: [rows, n_labels], row-major (CHECKed)
// Source: sklearn.metrics.accuracy_score and f1_score(average="micro") of label indicators.
LabelSetScore score_label_sets(std::span<const float> logits, std::span<const float> targets,
                               int64_t n_labels);

// Pearson's correlation: sum (x - mean x)(y - mean y) / sqrt(sum (x - mean x)^2 sum (y - mean
// y)^2), in [-1, 1]. None for fewer than two pairs, where one side is constant, or with a NaN or
// Inf.
std::optional<double> pearson(std::span<const double> x, std::span<const double> y);

// Spearman's correlation: Pearson's of the ranks, where equal values all have the mean of the ranks
// that they take. None as pearson().
std::optional<double> spearman(std::span<const double> x, std::span<const double> y);

// An answer as SQuAD compares it: lower case; without ASCII punctuation; without the words a, an,
// the; white space between words one space. Words are what lies between characters that are neither
// letter, number nor "_". Source: evaluate-v2.0.py of SQuAD, normalize_answer; its lower case makes
// a capital sigma at a word's end a final one, which this does not.
std::string normalized_answer(std::string_view answer);

struct AnswerScore {
  double exact = 0;  // 1: equal when normalized
  double f1 = 0;     // 2 p r / (p + r) of the words that both have, each as often as in both
};
// The best of each over the right answers; where there are none, "" is the right one. Where one
// side has no words, f1 is 1 if the other has none either, else 0. Source: evaluate-v2.0.py.
AnswerScore score_answer(std::string_view predicted, std::span<const std::string> answers);

}  // namespace octet
