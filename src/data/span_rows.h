// Rows of a stream of tokens with spans left out, as T5 is pretrained: the source has a sentinel in
// the place of each span, the target the sentinels and behind each its span. Source: Raffel et al.
// 2020, section 3.1.4; t5.data.preprocessors (random_spans_noise_mask).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/source_rows.h"
#include "data/token_stream.h"

namespace octet {

struct SpanRule {
  double share = 0.15, length = 3;      // of the tokens that are left out; mean of a span's tokens
  std::vector<int32_t> sentinels = {};  // in the order of the spans
  std::vector<int32_t> end = {};        // behind source and target
};

struct CorruptedText {
  std::vector<int32_t> source, target;
};

// How many tokens of n are left out, at least 1 and not all, and in how many spans: round(n share),
// round(that / length), halves to even.
struct SpanCounts {
  int64_t n_left_out = 0, n_spans = 0;
};
SpanCounts span_counts(int64_t n, const SpanRule& rule);

// Kept and left-out tokens take turns, a kept one first and a left-out one last; each way to cut
// either into n_spans parts is as probable as any other. Pure: a row is cut by Philox at (seed,
// row). `tokens`: two at least. Throws Error{invalid_argument} with fewer sentinels than spans.
CorruptedText leave_out_spans(std::span<const int32_t> tokens, const SpanRule& rule, uint64_t seed,
                              int64_t row);

struct SpanRowsOptions {
  int64_t seq = 0;  // tokens of a target, with what ends it
  SpanRule rule = {};
  uint64_t seed = 0;  // the run's
  SourceRowsOptions rows = {};
};

// Sample i is window i of the stream: as many tokens as fit into source and target. Which spans are
// left out hangs in training on the seed and the row's number in the run, in evaluations on the
// row's number alone. A last window of one token is left out. Throws Error{invalid_argument} where
// no two tokens of the stream fit into a row.
std::shared_ptr<const RowSource> span_rows(TokenStream stream, SpanRowsOptions options);

}  // namespace octet
