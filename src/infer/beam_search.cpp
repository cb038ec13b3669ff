#include "infer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "infer/sampling.h"

namespace octet {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kFinished = -1e9f;  // added to what must not be chosen

void apply(const TokenRules& rules, int64_t n_tokens, std::vector<float>& scores) {
  for (const int32_t id : rules.banned) {
    const bool ends = std::ranges::count(rules.ends, id) > 0;
    if (id >= 0 && id < std::ssize(scores) && !ends) scores[static_cast<size_t>(id)] = kNever;
  }
  if (!rules.forced_last || n_tokens + 1 != rules.max_tokens) return;
  std::ranges::fill(scores, kNever);
  scores.at(static_cast<size_t>(*rules.forced_last)) = 0;
}

// The indices of the n largest, the first of equals before the others.
std::vector<size_t> largest(std::span<const float> values, size_t n) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  n = std::min(n, order.size());
  const auto is_before = [&](size_t a, size_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n), order.end(),
                    is_before);
  order.resize(n);
  return order;
}

}  // namespace

std::vector<float> logits_by(const TokenRules& rules, std::span<const float> logits,
                             int64_t n_tokens) {
  std::vector<float> scores(logits.begin(), logits.end());
  apply(rules, n_tokens, scores);
  return scores;
}

std::vector<float> log_probabilities_by(const TokenRules& rules, std::span<const float> logits,
                                        int64_t n_tokens) {
  std::vector<float> scores(logits.begin(), logits.end());
  for (const float x : scores) check_logit(x, static_cast<size_t>(n_tokens));
  const float top = std::ranges::max(scores);
  double sum = 0;
  for (const float x : scores) sum += std::exp(static_cast<double>(x) - top);
  const auto log_sum = static_cast<float>(std::log(sum));
  for (float& x : scores) x = (x - top) - log_sum;
  apply(rules, n_tokens, scores);
  return scores;
}

BeamSearch::BeamSearch(const BeamOptions& options, const TokenRules& rules)
    : options_(options),
      rules_(rules),
      beams_(static_cast<size_t>(options.n_beams)),
      finished_(beams_.size()),
      parents_(beams_.size()) {
  CHECK(options.n_beams >= 1 && rules.max_tokens >= 1);
  for (size_t i = 1; i < beams_.size(); ++i) beams_[i].sum = kFinished;  // all are alike at first
}

std::optional<int32_t> BeamSearch::last_token(int64_t beam) const {
  const Beam& one = beams_[static_cast<size_t>(beam)];
  if (one.tokens.empty()) return std::nullopt;
  return one.tokens.back();
}

std::vector<BeamSearch::Candidate> BeamSearch::candidates(std::span<const float> logits) const {
  const size_t vocab = logits.size() / beams_.size();
  std::vector<float> sums;
  sums.reserve(logits.size());
  for (size_t beam = 0; beam < beams_.size(); ++beam) {
    const auto scores =
        log_probabilities_by(rules_, logits.subspan(beam * vocab, vocab), n_tokens_);
    for (const float score : scores) sums.push_back(score + beams_[beam].sum);
  }
  const size_t n_kept = std::max<size_t>(2, 1 + rules_.ends.size()) * beams_.size();
  std::vector<Candidate> best;
  for (const size_t i : largest(sums, n_kept)) {
    const auto token = static_cast<int32_t>(i % vocab);
    const bool ends = std::ranges::count(rules_.ends, token) > 0;
    best.push_back({.beam = static_cast<int64_t>(i / vocab),
                    .token = token,
                    .sum = sums[i],
                    .ends = ends || n_tokens_ + 1 >= rules_.max_tokens});
  }
  return best;
}

void BeamSearch::finish(const std::vector<Candidate>& best) {
  const bool are_full = std::ranges::all_of(finished_, &Hypothesis::is_finished);
  if (are_full && options_.early_stopping == EarlyStopping::yes) return;
  const auto length =
      static_cast<float>(std::pow(static_cast<double>(n_tokens_ + 1), options_.length_penalty));
  std::vector<Hypothesis> all = finished_;
  for (size_t i = 0; i < std::min(best.size(), beams_.size()); ++i) {
    if (!best[i].ends) continue;
    std::vector<int32_t> tokens = beams_[static_cast<size_t>(best[i].beam)].tokens;
    tokens.push_back(best[i].token);
    all.push_back(
        {.tokens = std::move(tokens), .score = best[i].sum / length, .is_finished = true});
  }
  std::ranges::stable_sort(all, std::greater{}, &Hypothesis::score);
  all.resize(finished_.size());
  finished_ = std::move(all);
}

void BeamSearch::go_on(const std::vector<Candidate>& best) {
  std::vector<float> sums;
  sums.reserve(best.size());
  for (const Candidate& one : best) sums.push_back(one.sum + (one.ends ? kFinished : 0));
  std::vector<Beam> next;
  std::vector<size_t> order = largest(sums, beams_.size());
  // Fewer candidates than beams, of a tiny vocabulary: the last one again, which never wins.
  while (order.size() < beams_.size()) order.push_back(order.back());
  for (size_t beam = 0; beam < beams_.size(); ++beam) {
    const Candidate& one = best[order[beam]];
    Beam& to = next.emplace_back(beams_[static_cast<size_t>(one.beam)]);
    to.tokens.push_back(one.token);
    to.sum = sums[order[beam]];
    parents_[beam] = one.beam;
  }
  beams_ = std::move(next);
}

bool BeamSearch::can_improve() const {
  const bool looks_ahead =
      options_.early_stopping == EarlyStopping::never && options_.length_penalty > 0;
  const int64_t length = looks_ahead ? rules_.max_tokens : n_tokens_;
  const float possible =
      beams_.front().sum /
      static_cast<float>(std::pow(static_cast<double>(length), options_.length_penalty));
  const float worst = std::ranges::min(finished_, {}, &Hypothesis::score).score;
  return std::ranges::any_of(finished_, [&](const Hypothesis& one) {
    return possible > (one.is_finished ? worst : kFinished);
  });
}

void BeamSearch::step(std::span<const float> logits) {
  CHECK(!is_done_ && logits.size() % beams_.size() == 0);
  const std::vector<Candidate> best = candidates(logits);
  finish(best);
  go_on(best);
  ++n_tokens_;
  const bool are_full = std::ranges::all_of(finished_, &Hypothesis::is_finished);
  is_done_ = !can_improve() || (are_full && options_.early_stopping == EarlyStopping::yes) ||
             std::ranges::all_of(best, &Candidate::ends);
}

}  // namespace octet
