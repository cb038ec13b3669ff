#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace octet {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

std::vector<double> penalized(std::span<const float> logits, std::span<const int32_t> text,
                              double penalty) {
  std::vector<double> result(logits.begin(), logits.end());
  if (penalty == 1) return result;
  std::vector<bool> is_seen(result.size());
  for (const int32_t id : text) {
    const auto i = static_cast<size_t>(id);
    if (i >= result.size() || is_seen[i]) continue;
    is_seen[i] = true;
    result[i] = result[i] > 0 ? result[i] / penalty : result[i] * penalty;
  }
  return result;
}

int32_t most_probable(const std::vector<double>& logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

// Weights exp(x - max x): the probabilities times their highest's inverse.
std::vector<double> weights_of(const std::vector<double>& logits) {
  const double top = *std::ranges::max_element(logits);
  std::vector<double> weights(logits.size());
  std::ranges::transform(logits, weights.begin(),
                         [top](double x) { return x == top ? 1.0 : std::exp(x - top); });
  return weights;
}

// The ids of those that are left, the highest first.
std::vector<size_t> ranked(const std::vector<double>& weights) {
  std::vector<size_t> ids;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) ids.push_back(i);
  }
  std::ranges::stable_sort(ids, [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  return ids;
}

void keep_top(std::vector<double>& weights, const Sampling& sampling) {
  const bool by_k = sampling.top_k > 0 && sampling.top_k < std::ssize(weights);
  if (!by_k && sampling.top_p >= 1) return;
  std::vector<size_t> ids = ranked(weights);
  size_t n_kept = ids.size();
  if (by_k) n_kept = std::min(n_kept, static_cast<size_t>(sampling.top_k));
  if (sampling.top_p < 1) {
    double total = 0;
    for (size_t i = 0; i < n_kept; ++i) total += weights[ids[i]];
    double sum = 0;
    size_t n = 0;
    while (n < n_kept && (n == 0 || sum < sampling.top_p * total)) sum += weights[ids[n++]];
    n_kept = n;
  }
  for (size_t i = n_kept; i < ids.size(); ++i) weights[ids[i]] = 0;
}

int32_t draw(const std::vector<double>& weights, double uniform) {
  double left = uniform * std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    left -= weights[i];
    if (left < 0) break;
  }
  return static_cast<int32_t>(last);
}

void expect(bool holds, std::string_view name, std::string_view what, double got) {
  if (holds) return;
  throw Error(ErrorCode::invalid_argument, "[generate] {}: expected {}, got {:g}", name, what, got);
}

}  // namespace

void check_sampling(const Sampling& sampling) {
  const double top_k = static_cast<double>(sampling.top_k);
  expect(std::isfinite(sampling.temperature) && sampling.temperature >= 0, "temperature",
         "a number of 0 or more", sampling.temperature);
  expect(top_k >= 0, "top_k", "0 or more", top_k);
  expect(sampling.top_p > 0 && sampling.top_p <= 1, "top_p", "above 0 and at most 1",
         sampling.top_p);
  expect(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p", "0 to 1", sampling.min_p);
  expect(std::isfinite(sampling.repetition_penalty) && sampling.repetition_penalty > 0,
         "repetition_penalty", "a number above 0", sampling.repetition_penalty);
}

void check_logit(float logit, size_t n_tokens) {
  if (!std::isnan(logit)) return;
  throw Error(ErrorCode::numerics, "[generate] expected finite logits, got NaN for token {}",
              n_tokens);
}

int32_t next_token(std::span<const float> logits, std::span<const int32_t> text, int64_t n_new,
                   const Sampling& sampling) {
  CHECK(!logits.empty() && sampling.temperature >= 0 && sampling.repetition_penalty > 0);
  const auto bad = std::ranges::find_if(logits, [](float x) { return std::isnan(x); });
  check_logit(bad == logits.end() ? 0.0f : *bad, text.size());
  std::vector<double> scores = penalized(logits, text, sampling.repetition_penalty);
  if (sampling.temperature == 0) return most_probable(scores);
  for (double& score : scores) {
    if (score != kNever) score /= sampling.temperature;
  }
  std::vector<double> weights = weights_of(scores);
  keep_top(weights, sampling);
  for (double& weight : weights) {
    if (weight < sampling.min_p) weight = 0;
  }
  const RandomStream random{.name = name_hash("generate"), .seed = sampling.seed};
  return draw(weights, static_cast<double>(random.uniform(static_cast<uint64_t>(n_new))));
}

}  // namespace octet
