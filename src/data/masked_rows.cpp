#include "data/masked_rows.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/integer.h"

namespace octet {
namespace {

MaskingOptions with_seed(MaskingOptions options, uint64_t seed) {
  options.seed = seed;
  return options;
}

class MaskedRows : public RowSource {
 public:
  MaskedRows(TokenStream stream, MaskedRowsOptions options)
      : stream_(std::move(stream)),
        options_(std::move(options)),
        inputs_{tokens_input(), options_.labels},
        in_training_(options_.masking),
        in_evaluation_(with_seed(options_.masking, 0)) {
    const auto n_around = std::ssize(options_.before) + std::ssize(options_.behind);
    window_ = options_.seq - n_around;
    if (window_ < 1) {
      throw Error(ErrorCode::invalid_argument,
                  "model.seq: expected more than the {} tokens around a text, got {}", n_around,
                  options_.seq);
    }
  }

  int64_t n_samples() const override { return ceil_div(stream_.n_tokens(), window_); }
  const std::vector<InputSpec>& inputs() const override { return inputs_; }
  bool tells_lengths() const override { return true; }
  uint64_t identity() const override {
    Xxh64 hash;
    const uint64_t stream = stream_.identity();
    hash.update(std::as_bytes(std::span(&stream, 1)));
    for (const auto* tokens : {&options_.before, &options_.behind}) {
      const auto n = static_cast<uint64_t>(tokens->size());
      hash.update(std::as_bytes(std::span(&n, 1)));
      hash.update(std::as_bytes(std::span(*tokens)));
    }
    return hash.digest();
  }
  int64_t sample_bytes() const override { return window_ * token_bytes(options_.masking.vocab); }

  void write(int64_t sample, const RowCell& where, Batch& to) const override {
    const MaskedRow row = masked(sample, where);
    const auto part = [&](const InputSpec& input) {
      return std::span(to.ints(input.name))
          .subspan(static_cast<size_t>(where.row * options_.seq),
                   static_cast<size_t>(options_.seq));
    };
    const auto tokens = part(inputs_[0]), labels = part(inputs_[1]);
    std::ranges::fill(tokens, options_.padding);
    std::ranges::copy(row.tokens, tokens.begin());
    std::ranges::copy(row.labels, labels.begin());
    to.lengths[static_cast<size_t>(where.row)] = std::ssize(row.tokens);
  }

 private:
  std::vector<int32_t> tokens_of(int64_t sample) const {
    CHECK(sample >= 0 && sample < n_samples());
    const int64_t first = sample * window_;
    std::vector<int32_t> window(static_cast<size_t>(std::min(window_, stream_.n_tokens() - first)));
    std::vector<uint8_t> flags(window.size());
    stream_.read(first, window, flags);
    const bool begins_so = !options_.before.empty() && window.front() == options_.before.back();
    std::vector<int32_t> tokens = options_.before;
    tokens.insert(tokens.end(), window.begin() + (begins_so ? 1 : 0), window.end());
    tokens.insert(tokens.end(), options_.behind.begin(), options_.behind.end());
    return tokens;
  }

  MaskedRow masked(int64_t sample, const RowCell& where) const {
    const TokenMasking& masking = where.use == RowUse::training ? in_training_ : in_evaluation_;
    return masking.mask(tokens_of(sample), where.drawn);
  }

  TokenStream stream_;
  MaskedRowsOptions options_;
  std::vector<InputSpec> inputs_;
  TokenMasking in_training_, in_evaluation_;
  int64_t window_ = 0;  // tokens of the stream in a row
};

}  // namespace

std::shared_ptr<const RowSource> masked_rows(TokenStream stream, MaskedRowsOptions options) {
  return std::make_shared<MaskedRows>(std::move(stream), std::move(options));
}

}  // namespace octet
