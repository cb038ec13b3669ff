#include "infer/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace octet {

LogProbabilities::LogProbabilities(std::span<const float> logits)
    : logits_(logits), max_(*std::ranges::max_element(logits)) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - max_));
  log_sum_ = std::log(sum);
}

double LogProbabilities::of(int32_t token) const {
  return static_cast<double>(logits_[static_cast<size_t>(token)] - max_) - log_sum_;
}

std::vector<int32_t> LogProbabilities::top(size_t n) const {
  std::vector<int32_t> ids(logits_.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + static_cast<int64_t>(std::min(n, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  ids.erase(end, ids.end());
  return ids;
}

}  // namespace octet
