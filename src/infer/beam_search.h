// Beam search for one text, as transformers' generate(num_beams=B) does it.
//
// Each step scores every token behind every beam by the beam's sum of log probabilities, in f32,
// and takes the best max(2, 1 + ends) B. Those of them that end (with an end token, or where
// max_tokens are written) and stand among the first B are finished, with the score sum /
// tokens^length_penalty; the best B that do not end are the next beams. The B best finished texts
// are kept. The search ends
//   no     when the best beam's sum / tokens^length_penalty, at its present length, is not above
//          the worst of B finished texts
//   yes    when B texts are finished, too
//   never  as no, but with a length penalty above 0 by the length max_tokens
// Equal scores rank by beam and id. Source: transformers 5, GenerationMixin._beam_search.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/named_enum.h"

namespace octet {

enum class EarlyStopping : uint8_t { no, yes, never };
constexpr auto value_names(EarlyStopping) {
  return name_list("no", "yes", "never");
}

// Which tokens may come next, and which end a text.
struct TokenRules {
  int64_t max_tokens = 200;                 // at least one
  std::vector<int32_t> ends = {};           // any of these ends a text
  std::vector<int32_t> banned = {};         // none of these is written, but ends
  std::optional<int32_t> forced_last = {};  // the token at max_tokens, where a text comes so far
};

struct BeamOptions {
  int64_t n_beams = 4;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
};

struct Hypothesis {
  std::vector<int32_t> tokens = {};  // with the token that ends it
  float score = -1e9f;
  bool is_finished = false;
};

class BeamSearch {
 public:
  BeamSearch(const BeamOptions& options, const TokenRules& rules);

  bool is_done() const { return is_done_; }
  // The last token of a beam; nothing before the first step.
  std::optional<int32_t> last_token(int64_t beam) const;
  // logits: of the beams, one after the other, f32 [n_beams, vocab]; before the first step all
  // beams are alike. Throws Error{numerics} for NaN.
  void step(std::span<const float> logits);
  // The beam that each beam has gone on from in the last step.
  const std::vector<int64_t>& parents() const { return parents_; }
  // The best finished text.
  const Hypothesis& best() const { return finished_.front(); }

 private:
  struct Beam {
    std::vector<int32_t> tokens = {};
    float sum = 0;
  };
  struct Candidate {
    int64_t beam = 0;
    int32_t token = 0;
    float sum = 0;
    bool ends = false;
  };
  std::vector<Candidate> candidates(std::span<const float> logits) const;
  void finish(const std::vector<Candidate>& best);
  void go_on(const std::vector<Candidate>& best);
  bool can_improve() const;

  BeamOptions options_;
  TokenRules rules_;
  std::vector<Beam> beams_;
  std::vector<Hypothesis> finished_;  // by score
  std::vector<int64_t> parents_;
  int64_t n_tokens_ = 0;
  bool is_done_ = false;
};

// log_softmax of logits, in f32, where the rules let a token be; else -Inf. n_tokens: that there
// are already.
std::vector<float> log_probabilities_by(const TokenRules& rules, std::span<const float> logits,
                                        int64_t n_tokens);
// Logits as the rules leave them.
std::vector<float> logits_by(const TokenRules& rules, std::span<const float> logits,
                             int64_t n_tokens);

}  // namespace octet
