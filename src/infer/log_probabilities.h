// Natural logarithms of the probabilities behind logits: x - max - ln(sum of exp(x - max)), the sum
// in double in the order of the ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octet {

class LogProbabilities {
 public:
  // The logits outlive it.
  explicit LogProbabilities(std::span<const float> logits);

  double of(int32_t token) const;  // NaN where a logit is
  // The most probable ones, the highest first; of equals the lowest id.
  std::vector<int32_t> top(size_t n) const;

 private:
  std::span<const float> logits_;
  float max_ = 0;
  double log_sum_ = 0;
};

}  // namespace octet
