#include "infer/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "data/rows.h"
#include "text/character_rule.h"
#include "text/unicode.h"

namespace octet {
namespace {

struct ClassCounts {
  int64_t n_labels = 0, n_predicted = 0, n_right = 0;
  double f1() const {
    const int64_t n = n_labels + n_predicted;  // 2 tp + fp + fn
    return n == 0 ? 0 : 2.0 * static_cast<double>(n_right) / static_cast<double>(n);
  }
};

std::map<int32_t, ClassCounts> count_classes(std::span<const int32_t> labels,
                                             std::span<const int32_t> predicted) {
  CHECK(labels.size() == predicted.size());
  std::map<int32_t, ClassCounts> counts;
  for (size_t i = 0; i < labels.size(); ++i) {
    ++counts[labels[i]].n_labels;
    ++counts[predicted[i]].n_predicted;
    if (labels[i] == predicted[i]) ++counts[labels[i]].n_right;
  }
  return counts;
}

bool is_right(std::span<const float> logits, size_t label, int64_t k) {
  int64_t n_before = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return false;
    if (logits[i] > logits[label] || (i < label && logits[i] == logits[label])) ++n_before;
  }
  return n_before < k;
}

bool all_finite(std::span<const double> values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

// From 1; equal values have the mean of theirs.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
    begin = end;
  }
  return ranks;
}

std::string without_punctuation(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || !is_punctuation(byte);
  });
  return out;
}

// Characters of Python's \w: no marks.
bool is_word_part(int32_t code) {
  return code == '_' || is_letter(code) || is_number(code);
}

std::string without_articles(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    Character next = decode_utf8(text, end);
    while (end < text.size() && is_word_part(next.code)) {
      end += next.length;
      if (end < text.size()) next = decode_utf8(text, end);
    }
    const std::string_view word = text.substr(at, end - at);
    out += word == "a" || word == "an" || word == "the" ? " " : word;
    if (end < text.size()) out += text.substr(end, next.length);
    at = end + next.length;
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool is_within = false;
  for (size_t at = 0; at < text.size();) {
    const Character character = decode_utf8(text, at);
    // Python's str.split() cuts at the four separators of ASCII too.
    const bool is_space =
        is_white_space(character.code) || (character.code >= 0x1C && character.code <= 0x1F);
    if (!is_space && !is_within) words.emplace_back();
    if (!is_space) words.back() += text.substr(at, character.length);
    is_within = !is_space;
    at += character.length;
  }
  return words;
}

double words_f1(std::vector<std::string> predicted, std::vector<std::string> answer) {
  if (predicted.empty() || answer.empty()) return predicted.empty() && answer.empty() ? 1 : 0;
  std::ranges::sort(predicted);
  std::ranges::sort(answer);
  std::vector<std::string> common;
  std::ranges::set_intersection(predicted, answer, std::back_inserter(common));
  if (common.empty()) return 0;
  const double precision = static_cast<double>(common.size()) / std::ssize(predicted);
  const double recall = static_cast<double>(common.size()) / std::ssize(answer);
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Hits top_k(std::span<const float> logits, std::span<const int32_t> labels, int64_t k) {
  CHECK(k >= 1 && (labels.empty() ? logits.empty() : logits.size() % labels.size() == 0));
  Hits hits;
  const size_t classes = labels.empty() ? 0 : logits.size() / labels.size();
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    CHECK(labels[i] >= 0 && static_cast<size_t>(labels[i]) < classes);
    ++hits.n;
    const auto label = static_cast<size_t>(labels[i]);
    if (is_right(logits.subspan(i * classes, classes), label, k)) ++hits.n_right;
  }
  return hits;
}

double f1(std::span<const int32_t> labels, std::span<const int32_t> predicted, int32_t positive) {
  return count_classes(labels, predicted)[positive].f1();
}

double matthews_correlation(std::span<const int32_t> labels, std::span<const int32_t> predicted) {
  const auto n = static_cast<double>(labels.size());
  double n_right = 0, both = 0, labels_squared = 0, predicted_squared = 0;
  for (const auto& [name, count] : count_classes(labels, predicted)) {
    const auto n_labels = static_cast<double>(count.n_labels),
               n_predicted = static_cast<double>(count.n_predicted);
    n_right += static_cast<double>(count.n_right);
    both += n_labels * n_predicted;
    labels_squared += n_labels * n_labels;
    predicted_squared += n_predicted * n_predicted;
  }
  const double scale = (n * n - predicted_squared) * (n * n - labels_squared);
  return scale == 0 ? 0 : (n_right * n - both) / std::sqrt(scale);
}

LabelSetScore score_label_sets(std::span<const float> logits, std::span<const float> targets,
                               int64_t n_labels) {
  const auto n = static_cast<size_t>(n_labels);
  CHECK(n > 0 && logits.size() == targets.size() && logits.size() % n == 0);
  ClassCounts all;
  Hits rows;
  for (size_t row = 0; row < logits.size(); row += n) {
    bool has_any = false, is_right = true;
    for (size_t i = row; i < row + n; ++i) {
      if (std::isnan(targets[i])) continue;
      const bool is_label = targets[i] > 0.5f, is_predicted = logits[i] > 0;
      all.n_labels += is_label ? 1 : 0;
      all.n_predicted += is_predicted ? 1 : 0;
      all.n_right += is_label && is_predicted ? 1 : 0;
      is_right = is_right && is_label == is_predicted;
      has_any = true;
    }
    rows.n += has_any ? 1 : 0;
    rows.n_right += has_any && is_right ? 1 : 0;
  }
  return {.subset_accuracy = rows.share(), .micro_f1 = all.f1()};
}

std::optional<double> pearson(std::span<const double> x, std::span<const double> y) {
  CHECK(x.size() == y.size());
  if (x.size() < 2 || !all_finite(x) || !all_finite(y)) return std::nullopt;
  const double mean_x = mean(x), mean_y = mean(y);
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  const bool is_constant =
      std::ranges::count(x, x[0]) == std::ssize(x) || std::ranges::count(y, y[0]) == std::ssize(y);
  if (is_constant || xx == 0 || yy == 0) return std::nullopt;
  return std::clamp(xy / std::sqrt(xx) / std::sqrt(yy), -1.0, 1.0);
}

std::optional<double> spearman(std::span<const double> x, std::span<const double> y) {
  CHECK(x.size() == y.size());
  if (!all_finite(x) || !all_finite(y)) return std::nullopt;
  return pearson(ranks_of(x), ranks_of(y));
}

std::string normalized_answer(std::string_view answer) {
  std::string lower;
  append_by(kLowercase, answer, lower);
  std::string joined;
  for (const std::string& word : words_of(without_articles(without_punctuation(lower)))) {
    if (!joined.empty()) joined += ' ';
    joined += word;
  }
  return joined;
}

AnswerScore score_answer(std::string_view predicted, std::span<const std::string> answers) {
  static const std::string kNone;
  const std::string own = normalized_answer(predicted);
  AnswerScore best;
  for (const std::string& answer : answers.empty() ? std::span(&kNone, 1) : answers) {
    const std::string right = normalized_answer(answer);
    best.exact = std::max(best.exact, own == right ? 1.0 : 0.0);
    best.f1 = std::max(best.f1, words_f1(words_of(own), words_of(right)));
  }
  return best;
}

}  // namespace octet
