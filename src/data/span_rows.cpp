#include "data/span_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/philox.h"

namespace octet {
namespace {

// Numbers below a bound, one after the other.
class Draws {
 public:
  Draws(uint64_t seed, int64_t row)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        row_(static_cast<uint64_t>(row)) {}
  int64_t below(int64_t n) {
    const PhiloxBlock words = philox(key_, row_, n_++);
    return static_cast<int64_t>(words.word[0] * static_cast<uint64_t>(n) >> 32);
  }

 private:
  PhiloxKey key_;
  uint64_t row_, n_ = 0;
};

// The lengths of n_parts parts of n, none empty: n_parts - 1 of the n - 1 places between are cut.
std::vector<int64_t> parts_of(int64_t n, int64_t n_parts, Draws& draws) {
  std::vector<int64_t> places(static_cast<size_t>(n - 1));
  std::iota(places.begin(), places.end(), int64_t{1});
  const auto n_cuts = static_cast<size_t>(n_parts - 1);
  for (size_t i = 0; i < n_cuts; ++i)
    std::swap(
        places[i],
        places[i + static_cast<size_t>(draws.below(std::ssize(places) - static_cast<int64_t>(i)))]);
  places.resize(n_cuts);
  std::ranges::sort(places);
  places.push_back(n);
  std::adjacent_difference(places.begin(), places.end(), places.begin());
  return places;
}

class SpanRows : public RowSource {
 public:
  SpanRows(TokenStream stream, SpanRowsOptions options)
      : stream_(std::move(stream)),
        options_(std::move(options)),
        inputs_{tokens_input(), options_.rows.labels, options_.rows.source, options_.rows.length} {
    while (fits(window_ + 1)) ++window_;
    if (window_ < 2) {
      throw Error(ErrorCode::invalid_argument,
                  "model.seq: expected rows that hold two tokens of a text, got {} for targets and "
                  "{} for sources",
                  options_.seq, options_.rows.source.n_inner());
    }
    span_counts(window_, options_.rule);
    if (stream_.n_tokens() < 2)
      throw Error(ErrorCode::bad_data, "[data] expected two tokens of text at least, got {}",
                  stream_.n_tokens());
  }

  int64_t n_samples() const override {
    const int64_t n = stream_.n_tokens();
    return ceil_div(n, window_) - (n % window_ == 1 ? 1 : 0);
  }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  int64_t places(int64_t sample) const override { return sizes(n_tokens(sample)).second; }
  uint64_t identity() const override {
    Xxh64 hash;
    hash.add(stream_.identity());
    hash.update_sized(options_.rule.sentinels);
    hash.update_sized(options_.rule.end);
    return hash.digest();
  }
  int64_t sample_bytes() const override { return window_ * static_cast<int64_t>(sizeof(int32_t)); }
  std::optional<int64_t> n_counted(int64_t sample, const RowCell&,
                                   const InputSpec& spec) const override {
    if (spec.name != options_.rows.labels.name) return std::nullopt;
    return sizes(n_tokens(sample)).second;
  }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    std::vector<int32_t> tokens(static_cast<size_t>(n_tokens(sample)));
    std::vector<uint8_t> flags(tokens.size());
    stream_.read(sample * window_, tokens, flags);
    const uint64_t seed = where.use == RowUse::training ? options_.seed : 0;
    const CorruptedText text = leave_out_spans(tokens, options_.rule, seed, where.drawn);
    write_pair(text.source, text.target, options_.rows, where.row, to);
  }

 private:
  int64_t n_tokens(int64_t sample) const {
    return std::min(window_, stream_.n_tokens() - sample * window_);
  }
  // Tokens of source and target.
  std::pair<int64_t, int64_t> sizes(int64_t n) const {
    const SpanCounts counts = span_counts(n, options_.rule);
    const int64_t n_more = counts.n_spans + std::ssize(options_.rule.end);
    return {n - counts.n_left_out + n_more, counts.n_left_out + n_more};
  }
  bool fits(int64_t n) const {
    if (n < 2) return true;
    const auto [n_source, n_target] = sizes(n);
    return n_source <= options_.rows.source.n_inner() && n_target <= options_.seq;
  }

  TokenStream stream_;
  SpanRowsOptions options_;
  std::vector<InputSpec> inputs_;
  int64_t window_ = 0;  // tokens of the stream in a row
};

}  // namespace

SpanCounts span_counts(int64_t n, const SpanRule& rule) {
  CHECK(n >= 2);
  SpanCounts counts;
  counts.n_left_out = std::clamp<int64_t>(
      static_cast<int64_t>(std::nearbyint(static_cast<double>(n) * rule.share)), 1, n - 1);
  const auto wanted =
      static_cast<int64_t>(std::nearbyint(static_cast<double>(counts.n_left_out) / rule.length));
  counts.n_spans =
      std::clamp<int64_t>(wanted, 1, std::min(counts.n_left_out, n - counts.n_left_out));
  if (counts.n_spans <= std::ssize(rule.sentinels)) return counts;
  throw Error(ErrorCode::invalid_argument,
              "data.spans.share: expected at most {} spans a row, of which the tokenizer has "
              "sentinels, got {}: shorter rows, or longer spans, have fewer",
              rule.sentinels.size(), counts.n_spans);
}

CorruptedText leave_out_spans(std::span<const int32_t> tokens, const SpanRule& rule, uint64_t seed,
                              int64_t row) {
  constexpr uint64_t kStream = name_hash("left-out spans");
  const SpanCounts counts = span_counts(std::ssize(tokens), rule);
  Draws draws(seed ^ kStream, row);
  const std::vector<int64_t> left_out = parts_of(counts.n_left_out, counts.n_spans, draws);
  const std::vector<int64_t> kept =
      parts_of(std::ssize(tokens) - counts.n_left_out, counts.n_spans, draws);
  CorruptedText text;
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto n_kept = static_cast<size_t>(kept[i]), n_out = static_cast<size_t>(left_out[i]);
    text.source.insert(text.source.end(), tokens.begin(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(n_kept));
    text.source.push_back(rule.sentinels[i]);
    text.target.push_back(rule.sentinels[i]);
    tokens = tokens.subspan(n_kept);
    text.target.insert(text.target.end(), tokens.begin(),
                       tokens.begin() + static_cast<std::ptrdiff_t>(n_out));
    tokens = tokens.subspan(n_out);
  }
  for (std::vector<int32_t>* side : {&text.source, &text.target})
    side->insert(side->end(), rule.end.begin(), rule.end.end());
  return text;
}

std::shared_ptr<const RowSource> span_rows(TokenStream stream, SpanRowsOptions options) {
  return std::make_shared<SpanRows>(std::move(stream), std::move(options));
}

}  // namespace octet
