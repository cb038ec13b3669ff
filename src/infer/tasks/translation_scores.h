// How near translations are to references: BLEU and chrF of a corpus, as sacrebleu 2 computes them
// without options. Sums in double, in the order of sacrebleu's; deterministic.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

// A text and one reference at least.
struct ScoredText {
  std::string text;
  std::vector<std::string> references;
};

// The words of a text as mteval-v13a has them: symbols are words, and full stop, comma and hyphen
// where no digit is beside them. Exposed for tests.
std::vector<std::string> words_13a(std::string_view text);

// BLEU of words_13a in percent: bp exp(mean of log p_n, n = 1..4), where p_n is the share of the
// texts' n-grams that a reference has, each as often at most as the reference that has it most; an
// order without any has 1 / 2^k of one n-gram, of the k-th such order; bp = exp(1 - r / c) where
// the texts' c words are fewer than the r of the references nearest in length (the shorter of
// equals). 0 where no n-gram is right. Source: Papineni et al. 2002; Chen & Cherry 2014 (smoothing
// 3); Post 2018, "A Call for Clarity in Reporting BLEU Scores".
double bleu(std::span<const ScoredText> texts);

// chrF2 in percent: of characters without white space, F with beta = 2 of the mean precision and
// the mean recall of n-grams, n = 1..6, over the orders that text and reference have, their counts
// summed over all texts; of several references that with which a text's own F is the largest.
// Source: Popovic 2015.
double chrf(std::span<const ScoredText> texts);

}  // namespace octet
